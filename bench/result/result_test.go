package result_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/result"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/seed"
)

// measured is the directory of a small result.
func measured(t *testing.T) (string, run.Result) {
	t.Helper()
	null, err := system.Find("null")
	if err != nil {
		t.Fatal(err)
	}
	p := run.Plan{Systems: []system.System{null}, Modes: []system.Mode{system.Shipped}, Runs: 1, Seed: 1, Workloads: []workload.Workload{{
		Name: "small", Kind: workload.Queue, Writers: 20, Workers: 4, Batch: 50, Take: 1, Backlog: 1000, Size: 100,
		Rates:  []workload.Rate{{Max: true}, {Once: true}},
		Fault:  workload.Fault{Times: 1},
		Phases: workload.Phases{Measure: 1500 * time.Millisecond, Drain: time.Minute},
	}}}
	r, clean, err := p.Run(t.Context(), io.Discard)
	if err != nil || !clean {
		t.Fatal(clean, err)
	}
	dir := t.TempDir()
	if err := result.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	return dir, r
}

func TestWhatWasWrittenIsVerified(t *testing.T) {
	dir, _ := measured(t)
	v, err := result.Verify(dir)
	if err != nil || v != (result.Verified{Files: 6, Cells: 2, Figures: 2}) {
		t.Errorf("%+v, %v", v, err)
	}
}

func TestAChangedDigitIsRefused(t *testing.T) {
	dir, _ := measured(t)
	path := filepath.Join(dir, "result.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	digits := regexp.MustCompile(`[0-9]`).FindAllIndex(text, -1)
	random := seed.Random(t)
	for range 100 {
		at := digits[random.IntN(len(digits))][0]
		changed := bytes.Clone(text)
		changed[at] = '0' + (changed[at]-'0'+byte(1+random.IntN(9)))%10
		write(t, path, changed)
		if _, err := result.Verify(dir); err == nil {
			t.Errorf("a changed digit is not seen: %s", changed[max(0, at-30):at+10])
		}
	}
}

// A digit of each kind of figure is refused, also in what is written from them.
func TestADigitOfEachKindIsRefused(t *testing.T) {
	dir, _ := measured(t)
	for _, c := range []struct{ file, before string }{
		{"result.json", `"events_per_second": `}, {"result.json", `"p99_ms": `}, {"result.json", `"acked": `}, {"result.json", `"lost": `},
		{"result.json", `"cpu_us_per_event": `}, {"result.json", `"written_bytes_per_event": `}, {"result.json", `"flush_4k_ns": `},
		{"report.md", "| null | max | "}, {"report.html", "<td>null<td>max<td>"}, {"bench.txt", "rate=max 1 "}, {"runs/001.hlog", "Tag=call,"}, {"runs/002.hlog", "Tag=done,"},
	} {
		path := filepath.Join(dir, c.file)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(text, []byte(c.before))
		if at < 0 {
			t.Errorf("%s does not have %s:\n%s", c.file, c.before, text)
			continue
		}
		changed := bytes.Clone(text)
		digit := at + len(c.before)
		changed[digit] = '0' + (changed[digit]-'0'+1)%10
		write(t, path, changed)
		if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), c.file+" was changed") {
			t.Errorf("a changed digit after %s in %s: %v", c.before, c.file, err)
		}
		write(t, path, text)
	}
}

// The histograms of another cell are none of this one, whoever changed all checksums with them.
func TestHistogramsOfAnotherCellAreRefused(t *testing.T) {
	dir, _ := measured(t)
	other, err := os.ReadFile(filepath.Join(dir, "runs/001.hlog"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "result.json"), bytes.ReplaceAll(text, []byte(r.Cells[1].Raw.SHA256), []byte(r.Cells[0].Raw.SHA256)))
	write(t, filepath.Join(dir, "runs/002.hlog"), other)
	sumAnew(t, dir)
	if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), "call is") {
		t.Error(err)
	}
}

// Ratios are of figures and of the machine's limits: neither is changed alone.
func TestARatioIsThatOfItsFigureAndItsLimit(t *testing.T) {
	_, r := measured(t)
	c := &r.Cells[0]
	c.Mode = system.Durable
	c.Figures.Ratios = c.Ratios(r.Plan.Workloads[0])
	dir := t.TempDir()
	if err := result.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	if _, err := result.Verify(dir); err != nil {
		t.Fatal(err)
	}
	c.Before.Flush4K *= 2
	dir = t.TempDir()
	if err := result.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), "ratios is") {
		t.Error(err)
	}
}

// Who changes the checksums, too, is caught by what was recorded.
func TestAChangedFigureIsRefusedByItsName(t *testing.T) {
	dir, r := measured(t)
	path := filepath.Join(dir, "result.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	call := r.Cells[1].Figures.Call
	for _, c := range []struct{ was, is, says string }{
		{fmt.Sprintf(`"events_per_second": %v`, number(t, r.Cells[0].Figures.PerSecond)), `"events_per_second": 123456789`, "events_per_second is"},
		{fmt.Sprintf(`"p99_ms": %v`, number(t, call.P99)), `"p99_ms": 0.001`, "call is"},
		{fmt.Sprintf(`"count": %d`, call.Count), `"count": 7`, "call is"},
		{`"seconds": [`, `"seconds": [ 5,`, "events_per_second is"},
		{`"sha256": "`, `"sha256": "0`, "was changed"},
	} {
		if !strings.Contains(string(text), c.was) {
			t.Fatalf("result.json does not have %s", c.was)
		}
		write(t, path, []byte(strings.Replace(string(text), c.was, c.is, 1)))
		sumAnew(t, dir)
		if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("with %s: %v", c.is, err)
		}
	}
}

func TestAnyOtherFileThatWasChangedOrIsMissingIsNamed(t *testing.T) {
	dir, _ := measured(t)
	for _, name := range []string{"report.html", "report.md", "bench.txt", "runs/001.hlog"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, append(bytes.Clone(text), ' '))
		if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), name+" was changed") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
		write(t, path, text)
	}
	if _, err := result.Verify(dir); err != nil {
		t.Error(err)
	}
}

func TestAFileThatTheListDoesNotHaveIsNamed(t *testing.T) {
	dir, _ := measured(t)
	for _, name := range []string{"notes.txt", "runs/007.hlog"} {
		path := filepath.Join(dir, name)
		write(t, path, nil)
		if _, err := result.Verify(dir); err == nil || !strings.Contains(err.Error(), name+" is there, and SHA256SUMS does not have it") {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAResultIsNotWrittenOverAnother(t *testing.T) {
	dir, r := measured(t)
	if err := result.Write(dir, r); err == nil || !strings.Contains(err.Error(), "name another directory with --out, or remove that one") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(dir, "result.json")); err != nil {
		t.Fatal(err)
	}
	if err := result.Free(dir); err == nil {
		t.Error("a directory with the checksums of a result is free")
	}
	if err := result.Free(filepath.Join(dir, "new")); err != nil {
		t.Error(err)
	}
}

// What is repeated has the same cells, and stands beside what was there.
func TestARepetitionHasTheSameCells(t *testing.T) {
	dir, r := measured(t)
	read, err := result.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := read.Plan.Again()
	if err != nil {
		t.Fatal(err)
	}
	again, _, err := plan.Run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Cells) != len(r.Cells) {
		t.Fatalf("%d cells, and there were %d", len(again.Cells), len(r.Cells))
	}
	for i, c := range again.Cells {
		was := r.Cells[i]
		if c.Seed != was.Seed || c.Workload != was.Workload || c.System != was.System || c.Rate != was.Rate || c.Mode != was.Mode {
			t.Errorf("cell %d is %+v, and was %+v", i, c, was)
		}
	}
	again.Cells[1].Figures, again.Cells[1].Void = nil, "the generator was too slow"
	var text strings.Builder
	if err := compare.Sides(&text, "there", read, "here", again); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"| small | null | max | events/s |", "| there | here | here / there |", "small, null, shipped, once has no figure here: void: the generator was too slow"} {
		if !strings.Contains(text.String(), says) {
			t.Errorf("it does not say %q: %s", says, text.String())
		}
	}
}

func TestAnOlderResultIsNotRepeated(t *testing.T) {
	if _, err := (run.Planned{}).Again(); err == nil || !strings.Contains(err.Error(), "older weir-bench") {
		t.Error(err)
	}
	if _, err := (run.Planned{Systems: []string{"null"}, Workloads: []workload.Workload{{}}, Builds: []string{"a", "b"}}).Again(); err == nil || !strings.Contains(err.Error(), "compares a and b") {
		t.Error(err)
	}
}

func number(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// sumAnew makes the checksums those of the files as they are.
func sumAnew(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "SHA256SUMS")
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	for line := range strings.Lines(string(old)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%x  %s\n", sha256.Sum256(text), name)
	}
	write(t, path, all.Bytes())
}
