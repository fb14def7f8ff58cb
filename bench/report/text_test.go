package report_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// A flush takes 3 ms in the mean, so that 100 calls a second are 0.3 in its time; 100 kB a second
// are 0.1 % of 100 MiB; and 6 ms are two flushes.
func TestADurableRowStandsBesideItsMachineInEveryFormat(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	cell := func(mode system.Mode, after time.Duration) run.Cell {
		return run.Cell{
			System: "some", Mode: mode, Workload: "events", Rate: "1000/s",
			Before:  limit.Limits{Flush4K: ms(3), Flush1M: ms(10)},
			After:   limit.Limits{Flush4K: after, Flush1M: ms(10)},
			Figures: &run.Figures{PerSecond: 1000, Call: &run.Latency{P50: run.Duration(ms(6))}},
		}
	}
	planned := run.Planned{Workloads: []workload.Workload{{Name: "events", Kind: workload.Log, Batch: 10, Size: 100}}}
	result := func(plan run.Planned, cells ...run.Cell) run.Result {
		return run.Result{Commit: "abc", Plan: plan, Cells: cells}
	}
	for _, c := range []struct {
		about string
		of    run.Result
		cells []string
		does  bool // it says that the machine changed
	}{
		{"durable", result(planned, cell(system.Durable, ms(3))), []string{"0.30 (0.1 %)", "2.00"}, false},
		{"durable, on a machine that changed", result(planned, cell(system.Durable, ms(1))), []string{"0.20 (0.1 %)", "3.00"}, true},
		{"shipped", result(planned, cell(system.Shipped, ms(3))), []string{"–", "–"}, false},
		{"of an older result, without a plan", result(run.Planned{}, cell(system.Durable, ms(3))), []string{"–", "2.00"}, false},
	} {
		for name, write := range map[string]func(io.Writer, run.Result) error{
			"text": report.Text, "HTML": report.HTML,
			"docs": func(w io.Writer, r run.Result) error { return report.Docs(w, []run.Result{r}) },
		} {
			var text strings.Builder
			if err := write(&text, c.of); err != nil {
				t.Fatal(err)
			}
			before, after, between := "| – | ", " | 0 |", " | " // the columns before and after are done p99 and CPU
			if name == "HTML" {
				before, after, between = "<td>–<td>", "<td>0<td>", "<td>"
			}
			if says := before + strings.Join(c.cells, between) + after; !strings.Contains(text.String(), says) {
				t.Errorf("%s, %s: it does not say %q:\n%s", c.about, name, says, text.String())
			}
			if does := strings.Contains(strings.ReplaceAll(text.String(), "&#39;", "'"), "delivered once; the machine's limits changed in 1 of 1 runs"); does != c.does {
				t.Errorf("%s, %s: that the machine changed is said: %v\n%s", c.about, name, does, text.String())
			}
		}
	}
}
