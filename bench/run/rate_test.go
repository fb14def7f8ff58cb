package run_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/workload"
)

// The article's rates are offered to one per cent, and who takes less is told so.
func TestARateIsOfferedToOnePerCent(t *testing.T) {
	for _, c := range []struct {
		kind  workload.Kind
		batch int
		rate  float64
	}{{workload.Log, 100, 5000}, {workload.Queue, 1, 2900}} {
		t.Run(string(c.kind), func(t *testing.T) {
			t.Parallel()
			w := load(c.kind, c.rate)
			w.Writers, w.Batch, w.Take = 10, c.batch, 1
			w.Phases = workload.Phases{Warm: time.Second, Measure: 5 * time.Second, Drain: time.Minute}
			result, _ := measure(t, "null", w)
			f := result.Cells[0].Figures
			if f == nil || f.Offered != c.rate {
				t.Fatalf("%+v", result.Cells[0])
			}
			sent := result.Cells[0].Verdict.Acked - int64(w.Writers) // without the markers
			if want := 6 * c.rate; math.Abs(float64(sent)-want) > 0.01*want {
				t.Errorf("%d were sent in six seconds at %v a second", sent, c.rate)
			}
			f.PerSecond = 0.9 * c.rate
			if text := formats(t, result); strings.Count(text, "90.0 % of the rate") != 2 {
				t.Errorf("the text and the page do not say that the system took less: %s", text)
			}
			f.PerSecond = 0.995 * c.rate
			if text := formats(t, result); strings.Contains(text, "of the rate") {
				t.Errorf("it took the rate to one per cent: %s", text)
			}
		})
	}
}

// A system that is given more than it takes has no more events a second because the measurement is
// short: what it answered afterwards took longer.
func TestAShortMeasurementHasTheRateThatWasTaken(t *testing.T) {
	t.Parallel()
	w := load(workload.Queue, 2900)
	w.Batch, w.Take = 1, 1
	w.Phases = workload.Phases{Warm: 100 * time.Millisecond, Measure: 400 * time.Millisecond, Drain: time.Minute}
	result, _ := measure(t, "liar-dawdles", w) // four workers, ten milliseconds each
	f := result.Cells[0].Figures
	if f == nil {
		t.Fatalf("%+v", result.Cells[0])
	}
	if f.PerSecond > 400 || f.PerSecond < 1 || f.Last < run.Duration(time.Second) {
		t.Errorf("%.0f events a second, the last after %v, of workers that take at most 400", f.PerSecond, f.Last)
	}
	if text := formats(t, result); !strings.Contains(text, "% of the rate") {
		t.Errorf("it does not say that the system took less: %s", text)
	}
}
