package run_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/bench/workload"
)

// Several topics, and several keys of each writer: order is checked for each key.
func TestWritersWithSeveralKeysAndTopicsAreChecked(t *testing.T) {
	for _, name := range []string{"null", "weir-sqlite", "pg-plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := load(workload.Log, 1000)
			w.Topics, w.Keys, w.Members, w.Phases.Measure, w.Phases.Drain = 3, 50, 2, time.Second, time.Minute
			result, _ := measure(t, name, w)
			for _, c := range result.Cells {
				if !c.Verdict.Clean() || c.Verdict.Acked == 0 || c.Verdict.Delivered != 2*c.Verdict.Acked {
					t.Errorf("%+v, %s", c.Verdict, c.Problem())
				}
			}
		})
	}
	t.Run("a liar", func(t *testing.T) {
		t.Parallel()
		w := load(workload.Log, 2000)
		w.Topics, w.Keys = 2, 10
		result, clean := measure(t, "liar-swaps", w)
		if c := result.Cells[0]; clean || c.Verdict.OutOfOrder == 0 || c.Figures != nil {
			t.Errorf("%+v", c.Verdict)
		}
	})
}
