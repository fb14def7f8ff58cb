package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/weir-log/weir/bench/run"
)

// The lines of a page between which Into puts tables.
const (
	sectionBegin = "<!-- weir-bench: what follows is written by `weir-bench docs` -->"
	sectionEnd   = "<!-- weir-bench: end -->"
)

// Docs writes tables for a page. All results must be of one commit and of one machine: figures of
// different commits or machines do not belong beside each other.
func Docs(w io.Writer, all []run.Result) error {
	first := all[0]
	for _, r := range all {
		switch {
		case r.Commit == "" || r.Commit == "unknown" || strings.HasSuffix(r.Commit, run.Changed):
			return fmt.Errorf("the result of %s is of the commit %q: nobody can build that again. Measure with a weir-bench that was built from a commit: make bench", when(r), r.Commit)
		case r.Commit != first.Commit:
			return fmt.Errorf("the results are of two commits, %s (%s) and %s (%s); a page has one", first.Commit, when(first), r.Commit, when(r))
		case r.Machine.Model != first.Machine.Model || r.Machine.CPUs != first.Machine.CPUs || r.Machine.Memory != first.Machine.Memory || r.Machine.Kernel != first.Machine.Kernel:
			return fmt.Errorf("the results are of two machines, %d × %s with %s (%s) and %d × %s with %s (%s); a page has one", first.Machine.CPUs, first.Machine.Model, first.Machine.Memory, when(first), r.Machine.CPUs, r.Machine.Model, r.Machine.Memory, when(r))
		}
	}
	fmt.Fprintf(w, "Commit %s, %d CPUs, %s, %s, Linux %s, %s; client and systems on this machine. Each row is the median of\nits runs, and a row that broke a promise has no figure ([bench.md](bench.md)).\n",
		first.Commit, first.Machine.CPUs, first.Machine.Model, first.Machine.Memory, first.Machine.Kernel, first.Machine.Go)
	Behind(w, all)
	for _, r := range all {
		fmt.Fprintf(w, "\n`%s`, %s, took %s; a flush of 4 KiB took %v, of 1 MiB %v.\n", withoutOut(r.Command), when(r), r.Took, r.Machine.Limits.Flush4K, r.Machine.Limits.Flush1M)
		if err := tables(w, r, "### "); err != nil {
			return err
		}
	}
	return systems(w, "### ", all...)
}

// out is the flag that says where a result goes, which is a matter of the machine.
var out = regexp.MustCompile(` --out[= ]\S+`)

func withoutOut(command string) string { return out.ReplaceAllString(command, "") }

func when(r run.Result) string { return r.Began.Format("2006-01-02 15:04 MST") }

// Into returns the page with the tables in its section, in the place of those that were there.
func Into(page []byte, all []run.Result) ([]byte, error) {
	before, rest, begun := bytes.Cut(page, []byte(sectionBegin+"\n"))
	_, after, ended := bytes.Cut(rest, []byte(sectionEnd+"\n"))
	if !begun || !ended {
		return nil, fmt.Errorf("the page has no section for tables: it needs the lines\n%s\n%s", sectionBegin, sectionEnd)
	}
	if bytes.Contains(after, []byte(sectionBegin)) {
		return nil, errors.New("the page has more than one section for tables")
	}
	var text bytes.Buffer
	text.Write(before)
	text.WriteString(sectionBegin + "\n\n")
	if err := Docs(&text, all); err != nil {
		return nil, err
	}
	text.WriteString("\n" + sectionEnd + "\n")
	text.Write(after)
	return text.Bytes(), nil
}
