package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// format is what a command prints: text or json.
type format string

func (f format) json() bool { return f == "json" }

// table prints rows under a header, in columns. Cells are made printable.
func table(w io.Writer, header string, rows [][]string) error {
	return tableIn(w, header, rows, func(int) string { return "" })
}

// tableIn is table, with a style for each row.
func tableIn(w io.Writer, header string, rows [][]string, style func(row int) string) error {
	var text bytes.Buffer
	out := tabwriter.NewWriter(&text, 0, 8, 2, ' ', 0)
	for _, row := range append([][]string{strings.Fields(header)}, rows...) {
		safe := make([]string, len(row))
		for i, cell := range row {
			safe[i] = strings.ReplaceAll(printable(cell), "\t", `\t`)
		}
		fmt.Fprintln(out, strings.Join(safe, "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return writeStyled(w, text.Bytes(), func(line int) string {
		if line == 0 {
			return bold
		}
		return style(line - 1)
	})
}

// printRows prints rows: as JSON, or as a table of their cells.
func printRows[R any](t *terminal, as format, header string, rows []R, cells func(R) []string) error {
	if as.json() {
		return printJSON(t, append([]R{}, rows...)) // none are [], not null
	}
	all := make([][]string, len(rows))
	for i, r := range rows {
		all[i] = cells(r)
	}
	return table(t.out, header, all)
}

// printEach prints a line for each of some things that were done, or all of them as JSON.
func printEach[R any](t *terminal, as format, done []R, line func(R) string) error {
	if as.json() {
		return printJSON(t, append([]R{}, done...))
	}
	for _, one := range done {
		fmt.Fprintln(t.out, line(one))
	}
	return nil
}

// printJSON prints one value, indented for people.
func printJSON(t *terminal, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = t.out.Write(append(printableJSONLines(text), '\n'))
	return err
}

// printableJSONLines keeps the line ends that indenting put between values.
func printableJSONLines(text []byte) []byte {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = string(printableJSON([]byte(line)))
	}
	return []byte(strings.Join(lines, "\n"))
}

// progress shows on a terminal how far something long has come: one line, rewritten at most four
// times a second.
type progress struct {
	t    *terminal
	last time.Time
}

func (p *progress) say(format string, args ...any) {
	if !p.t.errTTY || time.Since(p.last) < 250*time.Millisecond {
		return
	}
	p.last = time.Now()
	fmt.Fprintf(p.t.err, "\r\x1b[K"+format, args...)
}

// done wipes the line.
func (p *progress) done() {
	if !p.last.IsZero() {
		fmt.Fprint(p.t.err, "\r\x1b[K")
	}
}

// plural counts things: 1 record, 2 records.
func plural(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
