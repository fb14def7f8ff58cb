package run_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/workload"
)

// What nobody does costs is measured, after a reader has shown that it reads.
func TestAnIdleSystemIsMeasured(t *testing.T) {
	for _, c := range []struct {
		name string
		kind workload.Kind
	}{{"null", workload.Log}, {"weir-postgres", workload.Queue}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := load(c.kind, 0)
			w.Rates, w.Groups = []workload.Rate{{None: true}}, 1
			result, clean := measure(t, c.name, w)
			cell := result.Cells[0]
			if !clean || cell.Figures == nil || cell.Figures.Idle == nil || cell.Verdict.Acked != int64(w.Writers) || cell.Verdict.Delivered < cell.Verdict.Acked {
				t.Fatalf("%+v, %s", cell, cell.Problem())
			}
			if i := cell.Figures.Idle; c.name == "weir-postgres" && (i.CPU+i.ServerCPU <= 0 || cell.Figures.ServerRSS == 0) {
				t.Errorf("%+v", i)
			}
			if text := formats(t, result); strings.Count(text, "% of a processor") != 2 || strings.Contains(text, "BenchmarkTest") || strings.Contains(text, "NaN") {
				t.Errorf("the formats say %s", text)
			}
		})
	}
}
