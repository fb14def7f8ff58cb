package run_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// programs are weir-bench twice, which take null for two other systems.
func programs(t *testing.T, before, after string) []run.Build {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	builds := []run.Build{{Name: "before"}, {Name: "after"}}
	for i, measures := range []string{before, after} {
		builds[i].Program = filepath.Join(t.TempDir(), builds[i].Name)
		script := fmt.Sprintf("#!/bin/sh\nsed 's/\"null\"/\"%[1]s\"/' | '%[2]s' cell | sed 's/\"%[1]s\"/\"null\"/'\n", measures, self)
		if err := os.WriteFile(builds[i].Program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return builds
}

// turns measures a workload on a system with two builds.
func turns(t *testing.T, on string, mode system.Mode, w workload.Workload, runs int, builds []run.Build, progress io.Writer) run.Result {
	t.Helper()
	s, err := system.Find(on)
	if err != nil {
		t.Fatal(err)
	}
	result, clean, err := run.Plan{Systems: []system.System{s}, Workloads: []workload.Workload{w}, Modes: []system.Mode{mode}, Runs: runs, Seed: 1, Builds: builds}.Run(t.Context(), progress)
	if err != nil || !clean || len(result.Cells) != 2*runs*len(w.Rates) {
		t.Fatalf("%v: %+v", err, result.Cells)
	}
	return result
}

// found fails unless the builds differ in a figure, by such a ratio.
func found(t *testing.T, r run.Result, unit string, is func(ratio float64) bool) {
	t.Helper()
	lines, err := compare.Lines(r, "before", "after")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Unit == unit && l.Differs() && is(l.Ratio()) {
			return
		}
	}
	t.Errorf("it is not found: %+v", lines)
}

// Two programs measure in turns. One of them stalls for a second at the end of each run: that is
// found in six pairs.
func TestAProgramThatBecameSlowerIsFound(t *testing.T) {
	w := load(workload.Log, 100)
	w.Batch, w.Take, w.Phases.Warm, w.Phases.Measure, w.Phases.Drain = 1, 1, 100*time.Millisecond, 2*time.Second, time.Minute
	result := turns(t, "null", system.Shipped, w, 6, programs(t, "null", "liar-stalls"), io.Discard)
	found(t, result, "answer p99 ms", func(ratio float64) bool { return ratio >= 2 })
}

// Half of what each of two builds takes would be two loads, and the slower one would have less to
// do.
func TestTwoBuildsAreMeasuredAtOneRate(t *testing.T) {
	w := load(workload.Queue, 0)
	w.Rates, w.Backlog, w.Phases.Measure, w.Phases.Drain = append(w.Rates, workload.Rate{Share: 0.5}), 100, 500*time.Millisecond, time.Minute
	of := map[string][]float64{}
	for _, c := range turns(t, "null", system.Shipped, w, 2, programs(t, "null", "liar-dawdles"), io.Discard).Cells {
		if c.Rate == "50%" {
			of[c.Build] = append(of[c.Build], c.Figures.Offered)
		} else if c.Build == "after" {
			of["half"] = append(of["half"], c.Figures.PerSecond/2)
		}
	}
	if !slices.Equal(of["before"], of["half"]) || !slices.Equal(of["after"], of["half"]) {
		t.Errorf("the rates are %v; the slower build decides", of)
	}
}

// A run that is void through no fault of the system is measured once more: it is one of twelve.
func TestAVoidRunOfABuildIsMeasuredOnceMore(t *testing.T) {
	builds := programs(t, "null", "null")
	tried := filepath.Join(t.TempDir(), "tried")
	script := fmt.Sprintf("#!/bin/sh\n[ -e '%[1]s' ] || { touch '%[1]s'; exit 1; }\nexec '%[2]s'\n", tried, builds[1].Program)
	builds = append(builds[:1], run.Build{Name: "after", Program: filepath.Join(t.TempDir(), "fails-once")})
	if err := os.WriteFile(builds[1].Program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	turns(t, "null", system.Shipped, load(workload.Log, 100), 1, builds, &progress)
	if told := progress.String(); !strings.Contains(told, "void: failed: ") || !strings.Contains(told, "it is measured once more") {
		t.Errorf("nothing is said of the first try:\n%s", told)
	}
}

// A build of weir that sleeps for five milliseconds before each flush is found in six pairs.
func TestFiveMillisecondsMoreForEachFlushAreFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	slow := run.Build{Name: "after", Program: filepath.Join(t.TempDir(), "after")}
	build := exec.Command("go", "test", "-c", "-overlay", sleeping(t), "-o", slow.Program, ".")
	if told, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, told)
	}
	w := load(workload.Log, 0)
	w.Writers, w.Batch, w.Groups, w.Phases.Measure, w.Phases.Drain = 1, 1, 1, 300*time.Millisecond, time.Minute
	result := turns(t, "weir-sqlite", system.Durable, w, 6, []run.Build{{Name: "before", Program: self}, slow}, io.Discard)
	found(t, result, "events/s", func(ratio float64) bool { return ratio < 0.8 })
}

// sleeping is an overlay of the sources in which each flush takes five milliseconds more.
func sleeping(t *testing.T) (overlay string) {
	t.Helper()
	const commit = "outcomes, err := a.store.Commit(span, entries)"
	source, err := filepath.Abs("../../eventlog/appender.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil || strings.Count(string(text), commit) != 1 {
		t.Fatalf("%s does not have %q once: %v", source, commit, err)
	}
	slower := filepath.Join(t.TempDir(), "appender.go")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {source: slower}})
	if err != nil {
		t.Fatal(err)
	}
	overlay = filepath.Join(t.TempDir(), "overlay.json")
	for file, content := range map[string]string{slower: strings.Replace(string(text), commit, "<-time.After(5 * time.Millisecond); "+commit, 1), overlay: string(replaced)} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}
