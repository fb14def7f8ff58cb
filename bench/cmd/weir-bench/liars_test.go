package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/result"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
)

// A workload of each kind, in which every liar lies. Of a million events one is missing.
const (
	ofLog     = "{name: lies, kind: log, writers: 8, partitions: 4, groups: 2, members: 1, batch: 4, size: 100, rates: [2000], phases: {warm: 0s, measure: 4s, drain: DRAIN}}"
	ofMillion = "{name: lies, kind: log, writers: 1, partitions: 1, groups: 1, members: 1, batch: 1000, size: 32, rates: [1000000], phases: {warm: 0s, measure: 1100ms, drain: DRAIN}}"
	ofStreams = "{name: lies, kind: streams, writers: 8, streams: 16, batch: 4, size: 100, rates: [2000], phases: {warm: 0s, measure: 2s, drain: DRAIN}}"
	ofCalls   = "{name: lies, kind: log, writers: 8, partitions: 4, groups: 1, members: 1, batch: 1, size: 100, rates: [4000], phases: {warm: 0s, measure: 3s, drain: 1m}}"
)

// measuredByRun is the directory that the command run leaves, and what it returns.
func measuredByRun(t *testing.T, load, name string) (dir string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lies.yaml")
	if err := os.WriteFile(file, []byte(load), 0o600); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	return dir, (&runCmd{File: []string{file}, Systems: []string{name}, Mode: "both", Runs: 1, Scale: 1, Seed: 1, Out: dir}).Run(t.Context())
}

// The command run catches each liar by name, ends with an error, and writes no figure of it.
func TestRunHasNoFigureOfALiar(t *testing.T) {
	for _, c := range []struct{ name, load, says string }{
		{"liar-loses-one", ofMillion, "VIOLATION: 1 lost: event 999998 of writer 0 was acknowledged, and group group-0 did not get it"},
		{"liar-repeats", ofLog, "again"},
		{"liar-swaps", ofLog, "out of order"},
		{"liar-skips", ofStreams, "gaps in versions"},
		{"liar-flushes-not", ofLog, "acks are not flushed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := measuredByRun(t, strings.ReplaceAll(c.load, "DRAIN", "2s"), c.name)
			// What is lost is waited for, and readers may need longer on a busy machine.
			for wait := 4 * time.Second; !strings.Contains(read(t, dir, "report.md"), c.says) && wait < time.Minute; wait *= 2 {
				dir, err = measuredByRun(t, strings.ReplaceAll(c.load, "DRAIN", wait.String()), c.name)
			}
			if !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "1 of 1 cells have no figure") {
				t.Errorf("the command returns %v", err)
			}
			for _, format := range []string{"report.md", "report.html"} {
				text := read(t, dir, format)
				if !strings.Contains(text, c.name) || !strings.Contains(text, c.says) || strings.Contains(text, "delivered once |") || strings.Contains(text, "<rect") {
					t.Errorf("%s has a figure, or does not say %q:\n%s", format, c.says, text)
				}
			}
			if text := read(t, dir, "bench.txt"); strings.Contains(text, "Benchmark") {
				t.Errorf("bench.txt has a figure:\n%s", text)
			}
			if text := read(t, dir, "result.json"); strings.Contains(text, "events_per_second") || strings.Contains(text, "_ms\"") {
				t.Errorf("result.json has a figure:\n%s", text)
			}
			r, err := result.Read(dir)
			if err != nil || len(r.Cells) != 1 || !strings.Contains(r.Cells[0].Problem(), c.says) {
				t.Fatalf("result.json does not say %q: %v: %+v", c.says, err, r.Cells)
			}
			if v, err := result.Verify(dir); err != nil || v.Cells != 1 || v.Figures != 0 {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// What an adapter says of its system is in every format that people read.
func TestRunSaysWhatIsBehindAnAdapter(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("%v: the adapter in Python is not measured here", err)
	}
	file, err := filepath.Abs("../../examples/adapter.py")
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := measuredByRun(t, strings.ReplaceAll(ofLog, "DRAIN", "1m"), "exec:python3 "+file)
	r, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	r.Commit = "abc" // a page has only what can be built again
	var docs, again bytes.Buffer
	if err := errors.Join(report.Docs(&docs, []run.Result{r}), report.Text(&again, r)); err != nil {
		t.Fatal(err)
	}
	for of, text := range map[string]string{"report.md": read(t, dir, "report.md"), "report.html": read(t, dir, "report.html"), "docs": docs.String(), "show": again.String()} {
		for mode, synchronous := range map[system.Mode]string{system.Durable: "FULL", system.Shipped: "NORMAL"} {
			says := regexp.MustCompile(string(mode) + `: an adapter: python3 [^\n]*synchronous: ` + synchronous + `; system: SQLite 3\.`)
			if !says.MatchString(text) {
				t.Errorf("%s does not say %s:\n%s", of, says, text)
			}
		}
	}
}

// What is only slow has its figures, and they show it: a stall of a second, and answers that are
// 300 ms late.
func TestRunShowsWhatIsSlow(t *testing.T) {
	for _, c := range []struct {
		name, load string
		least      run.Duration // of the slowest answer
	}{{"liar-stalls", ofLog, run.Duration(900 * time.Millisecond)}, {"liar-answers-late", ofCalls, run.Duration(299 * time.Millisecond)}} {
		t.Run(c.name, func(t *testing.T) {
			dir, err := measuredByRun(t, strings.ReplaceAll(c.load, "DRAIN", "1m"), c.name)
			r, readErr := result.Read(dir)
			if readErr != nil || len(r.Cells) != 1 {
				t.Fatal(err, readErr)
			}
			if r.Cells[0].About == "" {
				t.Error("result.json does not say what the system is")
			}
			f := r.Cells[0].Figures
			if f == nil {
				t.Skip("this machine is too busy to send: " + r.Cells[0].Problem())
			}
			if err != nil || f.Call.Max < c.least || f.Call.P99 < c.least/5 {
				t.Errorf("%v: %+v", err, f.Call)
			}
			for format, before := range map[string]string{"report.md": "| ", "report.html": "<td>", "bench.txt": " "} {
				p99 := f.Call.P99.String()
				if format == "bench.txt" {
					p99 = fmt.Sprintf("%.3f p99-ms", float64(f.EndToEnd.P99)/1e6)
				}
				text := read(t, dir, format)
				if !strings.Contains(text, before+p99) {
					t.Errorf("%s does not have %s:\n%s", format, p99, text)
				}
				if about := c.name + ", shipped: " + r.Cells[0].About + " ("; format != "bench.txt" && !strings.Contains(text, about) {
					t.Errorf("%s does not say %q:\n%s", format, about, text)
				}
			}
		})
	}
}

// A month's cost is not computed from a result that somebody changed.
func TestCostRefusesAChangedResult(t *testing.T) {
	dir, _ := measuredByRun(t, strings.Replace(strings.ReplaceAll(ofCalls, "DRAIN", "1m"), "measure: 3s", "measure: 1s", 1), "null")
	cost := &costCmd{Dir: dir, Events: []float64{10}, Cores: 2}
	if err := cost.Run(); err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(read(t, dir, "result.json"), `"cpu_us_per_event": `, `"cpu_us_per_event": 1`, 1)
	changed = strings.Replace(changed, `"seed": 1`, `"seed": 2`, 1) // of a cell without figures
	if err := os.WriteFile(filepath.Join(dir, "result.json"), []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cost.Run(); err == nil || !strings.Contains(err.Error(), "is not what was measured") {
		t.Error(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
