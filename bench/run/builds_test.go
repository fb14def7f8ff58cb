package run_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Two programs measure in turns. One of them stalls for a second at the end of each run: that is
// found in six pairs.
func TestAProgramThatBecameSlowerIsFound(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	builds := []run.Build{{Name: "before"}, {Name: "after"}}
	for i, measures := range []string{"null", "liar-stalls"} {
		builds[i].Program = filepath.Join(t.TempDir(), builds[i].Name)
		script := fmt.Sprintf("#!/bin/sh\nsed 's/\"null\"/\"%[1]s\"/' | '%[2]s' cell | sed 's/\"%[1]s\"/\"null\"/'\n", measures, self)
		if err := os.WriteFile(builds[i].Program, []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	null, err := system.Find("null")
	if err != nil {
		t.Fatal(err)
	}
	w := load(workload.Log, 100)
	w.Batch, w.Take, w.Phases.Warm, w.Phases.Measure, w.Phases.Drain = 1, 1, 100*time.Millisecond, 2*time.Second, time.Minute
	result, clean, err := run.Plan{Systems: []system.System{null}, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Shipped}, Runs: 6, Seed: 1, Builds: builds}.Run(t.Context(), io.Discard)
	if err != nil || !clean || len(result.Cells) != 12 {
		t.Fatalf("%v: %+v", err, result.Cells)
	}
	lines, err := compare.Lines(result, "before", "after")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		if l.Unit == "answer p99 ms" {
			if !l.Differs() || l.Ratio() < 2 {
				t.Errorf("%+v", l)
			}
			return
		}
	}
	t.Errorf("the lines are %+v", lines)
}
