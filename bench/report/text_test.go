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
	"github.com/weir-log/weir/internal/cost"
	"github.com/weir-log/weir/internal/ledger"
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

// Of three runs one is void, and one broke a promise: that is what every format says, and none has
// a figure of the third.
func TestARowHasNoFigureIfOneOfItsRunsBrokeAPromise(t *testing.T) {
	cell := func(n int, c run.Cell) run.Cell {
		c.System, c.Workload, c.Rate, c.Mode, c.Run = "some", "events", "max", "durable", n
		return c
	}
	clean := run.Figures{PerSecond: 4711, CPU: 4711, Call: &run.Latency{P50: 4711e6, P99: 4711e6}}
	r := run.Result{Plan: run.Planned{Workloads: []workload.Workload{{Name: "events", Kind: workload.Log, Size: 100}}}, Cells: []run.Cell{
		cell(1, run.Cell{Void: "the generator was too slow"}),
		cell(2, run.Cell{Verdict: ledger.Verdict{Lost: 1}}),
		cell(3, run.Cell{Figures: &clean}),
	}}
	for name, write := range map[string]func(io.Writer, run.Result) error{
		"text": report.Text, "HTML": report.HTML, "benchstat": report.Benchstat,
		"cost": func(w io.Writer, r run.Result) error {
			return report.Cost(w, r, report.Costs{Prices: cost.Default(), Events: []float64{10}, Cores: 2})
		},
		"docs": func(w io.Writer, r run.Result) error { r.Commit = "abc"; return report.Docs(w, []run.Result{r}) },
	} {
		var text strings.Builder
		if err := write(&text, r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), "4711") || strings.Contains(text.String(), "too slow") || name != "benchstat" && !strings.Contains(text.String(), "VIOLATION: 1 lost") {
			t.Errorf("%s has a figure, or does not say that an event is lost:\n%s", name, text.String())
		}
	}
	r.Judge()
	if c := r.Cells[2]; c.Figures != nil || c.Problem() != "void: run 2 broke a promise" {
		t.Errorf("in result.json the third run is %+v", c)
	}
}

// Who reads a report knows what was measured: at which version, and with which settings.
func TestAReportSaysWhatItsSystemsAre(t *testing.T) {
	cell := func(mode system.Mode, flush string) run.Cell {
		return run.Cell{System: "some", About: "Some 4.7.11, one broker", Mode: mode, Settings: system.Settings{"flush": flush, "copies": "1"}, Workload: "events", Rate: "max", Figures: &run.Figures{}}
	}
	r := run.Result{Commit: "abc", Cells: []run.Cell{cell(system.Shipped, "none"), cell(system.Durable, "each message"), cell(system.Durable, "each message")}}
	for name, write := range map[string]func(io.Writer, run.Result) error{
		"text": report.Text, "HTML": report.HTML,
		"docs": func(w io.Writer, r run.Result) error { return report.Docs(w, []run.Result{r, r}) },
	} {
		var text strings.Builder
		if err := write(&text, r); err != nil {
			t.Fatal(err)
		}
		for _, says := range []string{"some, shipped: Some 4.7.11, one broker (copies: 1; flush: none)", "some, durable: Some 4.7.11, one broker (copies: 1; flush: each message)"} {
			if strings.Count(text.String(), says) != 1 {
				t.Errorf("%s does not say once %q:\n%s", name, says, text.String())
			}
		}
	}
}
