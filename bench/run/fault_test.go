package run_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// What was acknowledged before a kill is there after it, once.
func TestAKillLosesNothingThatWasAcknowledged(t *testing.T) {
	for _, c := range []struct {
		name string
		kind workload.Kind
	}{{"pg-plain", workload.Queue}, {"pg-plain", workload.Log}, {"weir-postgres", workload.Log}, {"weir-sqlite+kafka", workload.Log}} {
		t.Run(c.name+" "+string(c.kind), func(t *testing.T) {
			t.Parallel()
			for _, cell := range killOnce(t, c.name, c.kind, modes).Cells {
				if !cell.Verdict.Clean() || cell.Figures == nil || len(cell.Figures.Recovered) != 1 {
					t.Errorf("%+v, %s, %+v", cell.Verdict, cell.Problem(), cell.Figures)
				}
			}
		})
	}
}

// killOnce kills a system under load, and starts it again.
func killOnce(t *testing.T, name string, kind workload.Kind, in func(system.System) []system.Mode) run.Result {
	t.Helper()
	s, err := system.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	w := load(kind, 200)
	w.Batch, w.Take, w.Phases.Measure, w.Phases.Drain = 1, 1, 4*time.Second, time.Minute
	w.Fault, w.Follow = workload.Fault{Kind: workload.Kill, After: time.Second, Times: 1}, kind == workload.Streams
	result, _ := measureIn(t, s, w, in(s)...)
	return result
}

// A system that forgets at a kill what it had acknowledged is caught.
func TestALiarThatForgetsAtAKillIsCaught(t *testing.T) {
	t.Parallel()
	for _, kind := range []workload.Kind{workload.Log, workload.Queue} {
		w := load(kind, 2000)
		w.Fault = workload.Fault{Kind: workload.Kill, After: time.Second, Times: 1}
		result, clean := measure(t, "liar-dies", w)
		if c := result.Cells[0]; clean || c.Verdict.Lost == 0 || c.Figures != nil {
			t.Errorf("%s: the cell is %+v", kind, c)
		}
	}
}

func TestWhatHappensIsSeenBeside(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault workload.FaultKind
	}{{"pg-plain", workload.Snapshot}, {"weir-sqlite+kafka", workload.Pause}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := load(map[workload.FaultKind]workload.Kind{workload.Snapshot: workload.Queue, workload.Pause: workload.Log}[c.fault], 100)
			w.Batch, w.Take, w.Phases.Measure, w.Phases.Drain = 1, 1, 6*time.Second, time.Minute
			w.Fault = workload.Fault{Kind: c.fault, After: 2 * time.Second, For: 2 * time.Second, Times: 1}
			result, _ := measure(t, c.name, w)
			for _, cell := range result.Cells {
				if !cell.Verdict.Clean() || cell.Figures == nil || len(cell.Figures.Windows) != 3 {
					t.Fatalf("%+v, %s", cell.Verdict, cell.Problem())
				}
				before, during := cell.Figures.Windows[0], cell.Figures.Windows[1]
				if before.Latency == nil || c.fault == workload.Pause && time.Duration(during.Latency.Max) < time.Second || c.fault == workload.Snapshot && during.Size == 0 {
					t.Errorf("before %+v, during %+v", before, during)
				}
			}
		})
	}
}

func TestASystemThatCannotBeKilledIsNotRun(t *testing.T) {
	w := load(workload.Log, 100)
	w.Fault.Kind = workload.Kill
	if result, _ := measure(t, "null", w); result.Cells[0].NotRun == "" {
		t.Errorf("it was run: %+v", result.Cells[0])
	}
}
