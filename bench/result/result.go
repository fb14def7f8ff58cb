// Package result keeps a result in a directory, and checks one that somebody hands on.
package result

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
)

// Schema is what result.json says that it is.
const Schema = run.Schema

// Names in a directory.
const (
	file = "result.json"
	sums = "SHA256SUMS" // of all files, as sha256sum -c reads it
	runs = "runs"       // with the histograms of each cell
)

// Extra is a file more.
type Extra struct {
	Name  string
	Write func(io.Writer) error
}

// Free says why a result cannot be written to a directory: it has files, which would stay among
// those of the result. nil: it can.
func Free(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s has files already (%s): name another directory with --out, or remove them", dir, entries[0].Name())
	}
	return nil
}

// Write writes a result to a directory in every format: result.json, the raw histograms of each
// cell, reports, and the checksums of all of them. The directory must be Free before what is
// written was measured; now it must have no result.
func Write(dir string, r run.Result, more ...Extra) error {
	for _, name := range []string{file, sums, runs} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s has a result already (%s): name another directory with --out, or remove that one", dir, name)
		}
	}
	files := map[string][]byte{}
	r.Cells = slices.Clone(r.Cells)
	for i, c := range r.Cells {
		if c.Raw != nil && c.Raw.Log != "" {
			name := fmt.Sprintf("%s/%03d.hlog", runs, i+1)
			files[name] = []byte(c.Raw.Log)
			r.Cells[i].Raw = &run.Raw{File: name, SHA256: sum(files[name])}
		}
	}
	encoded, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	files[file] = append(encoded, '\n')
	formats := append([]Extra{
		{"report.html", func(w io.Writer) error { return report.HTML(w, r) }},
		{"bench.txt", func(w io.Writer) error { return report.Benchstat(w, r) }},
		{"report.md", func(w io.Writer) error { return report.Text(w, r) }},
	}, more...)
	for _, f := range formats {
		var text bytes.Buffer
		if err := f.Write(&text); err != nil {
			return err
		}
		files[f.Name] = text.Bytes()
	}
	var all bytes.Buffer
	for _, name := range sorted(files) {
		fmt.Fprintf(&all, "%s  %s\n", sum(files[name]), name)
	}
	files[sums] = all.Bytes()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func sum(text []byte) string { s := sha256.Sum256(text); return hex.EncodeToString(s[:]) }

func sorted(files map[string][]byte) (names []string) {
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Read reads the result of a directory, or a result.json.
func Read(path string) (r run.Result, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, file)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", path, err)
	}
	if r.Schema != Schema {
		return r, fmt.Errorf("%s: its schema is %q, and this program reads %q", path, r.Schema, Schema)
	}
	return r, nil
}

// Verified is what Verify found to be as it was written.
type Verified struct{ Files, Cells, Figures int }

// Verify checks a directory. Its files are those that were written, and the figures of each cell
// are those that its raw histograms and its seconds give. It finds a changed digit, and a changed
// latency or rate even of somebody who changed the checksums with it. It cannot find a result that
// was invented as a whole.
func Verify(dir string) (v Verified, err error) {
	names, wrong := checksums(dir)
	v.Files = names
	r, err := Read(dir)
	if err != nil {
		return v, errors.Join(wrong, err)
	}
	for _, c := range r.Cells {
		v.Cells++
		if c.Figures == nil {
			continue
		}
		v.Figures++
		if err := verify(dir, r, c); err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("%s, %s, %s, %s, run %d: %w", c.Workload, c.System, c.Mode, c.Rate, c.Run, err))
		}
	}
	return v, wrong
}

// checksums compares the files with the list of their checksums.
func checksums(dir string) (n int, wrong error) {
	text, err := os.ReadFile(filepath.Join(dir, sums))
	if err != nil {
		return 0, fmt.Errorf("there are no checksums, so it cannot be verified: %w", err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		want, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		if !ok || !filepath.IsLocal(name) {
			return n, fmt.Errorf("%s has the line %q", sums, line)
		}
		seen[name] = true
		content, err := os.ReadFile(filepath.Join(dir, name))
		switch got := sum(content); {
		case err != nil:
			wrong = errors.Join(wrong, err)
		case got != want:
			wrong = errors.Join(wrong, fmt.Errorf("%s was changed: its SHA-256 is %s, and it was written with %s", name, got, want))
		default:
			n++
		}
	}
	if !seen[file] {
		wrong = errors.Join(wrong, fmt.Errorf("%s does not have %s", sums, file))
	}
	seen[sums] = true
	return n, errors.Join(wrong, unlisted(dir, seen))
}

// unlisted names the files that a directory has and its list does not.
func unlisted(dir string, listed map[string]bool) (wrong error) {
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !listed[name] {
			wrong = errors.Join(wrong, fmt.Errorf("%s is there, and %s does not have it: it is not of this result", name, sums))
		}
		return err
	})
	return errors.Join(wrong, err)
}

// verify checks a cell that has figures.
func verify(dir string, r run.Result, c run.Cell) error {
	if problem := c.Problem(); problem != "" {
		return fmt.Errorf("it has figures although it is %q", problem)
	}
	if c.Raw == nil || !filepath.IsLocal(c.Raw.File) {
		return errors.New("it has figures and no raw histograms")
	}
	raw, err := os.ReadFile(filepath.Join(dir, c.Raw.File))
	if err != nil {
		return err
	}
	if got := sum(raw); got != c.Raw.SHA256 {
		return fmt.Errorf("%s was changed: its SHA-256 is %s, and result.json says %s", c.Raw.File, got, c.Raw.SHA256)
	}
	w, err := r.Plan.Workload(c.Workload)
	if err != nil {
		return err
	}
	again, err := c.Again(w, bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return differ(*c.Figures, again)
}

// differ says in which field of result.json two figures differ.
func differ(is, must run.Figures) error {
	a, b := reflect.ValueOf(is), reflect.ValueOf(must)
	for i := range a.NumField() {
		x, err := json.Marshal(a.Field(i).Interface())
		if err != nil {
			return err
		}
		y, err := json.Marshal(b.Field(i).Interface())
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			name, _, _ := strings.Cut(a.Type().Field(i).Tag.Get("json"), ",")
			return fmt.Errorf("%s is %s, and what was recorded gives %s", name, x, y)
		}
	}
	return nil
}
