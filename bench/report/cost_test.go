package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/cost"
)

// The month is that of internal/cost, for what was measured.
func TestAMonthCostsWhatWasMeasured(t *testing.T) {
	cell := func(system, load string, f *run.Figures) run.Cell {
		c := run.Cell{System: system, Mode: "durable", Workload: load, Rate: "max", Figures: f}
		if f == nil {
			c.Void = "the generator was too slow"
		}
		return c
	}
	r := run.Result{
		Plan: run.Planned{Workloads: []workload.Workload{{Name: "events", Kind: workload.Log, Groups: 2, Size: 1000, Phases: workload.Phases{Measure: 20 * time.Second}}, {Name: "messages", Kind: workload.Queue, Size: 1000}}},
		Cells: []run.Cell{
			cell("some", "events", &run.Figures{CPU: 1000, ServerCPU: 2000, Stored: 3000}),
			cell("weir-s3", "events", &run.Figures{CPU: 100}),
			cell("weir-s3+kafka", "events", &run.Figures{CPU: 100, PerSecond: 1000, Requests: &run.Requests{Puts: 8, Gets: 20, Lists: 1}}),
			cell("kafka", "events", &run.Figures{CPU: 100, Stored: 1000}),
			cell("void", "events", nil),
			cell("some", "messages", &run.Figures{CPU: 10}),
		},
	}
	var text strings.Builder
	prices := cost.Prices{Currency: "EUR", MachineHour: 0.1, DiskGB: 0.1, ObjectGB: 0.02, Puts: 0.005, Gets: 0.0004}
	if err := report.Cost(&text, r, report.Costs{Prices: prices, Events: []float64{1000}, Retention: 1000 * time.Second, Cores: 2}); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{
		"| some | max | 1 | 3000 | 3000 | 3 | 219 | 0.083 |", // 3,000 events a second of CPU / 0.6 / 2 is 2.5 machines, and 3 GB / 0.7 on disk
		"| void | max | void: the generator was too slow | – | – | – | – | – |",
		"| kafka | max | 3 | 100 | 1000 | 3 | 219 | 0.083 |", // as many copies as it has in three zones
		"events, weir-s3, max: the requests are those that docs/cost.md computes; none were counted.",
		"events, weir-s3+kafka, max: at 1000 a second the bucket had 9.0 PUTs and LISTs and 20.0 GETs a second; docs/cost.md computes 4.1 and 9.1, and for other loads the bill has them in this proportion, but no fewer than computed: they were counted for 20s, ",
		"| some | max | 1 | 10 | – | 1 | 73 | 0.028 |",
		"1000 a second: machines | EUR a month | a million |",
	} {
		if !strings.Contains(text.String(), says) {
			t.Errorf("it does not say %q:\n%s", says, text.String())
		}
	}
	// PUTs of a bucket are there, and disks are not.
	want := prices.Measured(cost.Load{Bytes: 1e6, Records: 1000, Reads: 2, Retention: 1000 * time.Second}, cost.Used{CPU: 100 * time.Microsecond, Cores: 2, Bucket: &cost.Bucket{Processes: 1, Linger: 250 * time.Millisecond}}).Total()
	if want < 130 || !strings.Contains(text.String(), fmt.Sprintf("| weir-s3 | max | 1 | 100 | – | 1 | %.0f |", want)) {
		t.Errorf("of weir-s3 it should say %.0f:\n%s", want, text.String())
	}
	// Its requests were counted at this load, so the bill has those and not the computed ones.
	if want = 73 + (9*0.005+20*0.0004)*2628 + 1*0.02; !strings.Contains(text.String(), fmt.Sprintf("| weir-s3+kafka | max | 1 | 100 | – | 1 | %.0f |", want)) {
		t.Errorf("of weir-s3+kafka it should say %.0f:\n%s", want, text.String())
	}
	text.Reset()
	if err := report.Cost(&text, r, report.Costs{Prices: prices, Events: []float64{1000}, Cores: 2, Copies: 1}); err != nil || !strings.Contains(text.String(), "| kafka | max | 1 | 100 | 1000 | 1 | 73 | 0.028 |") {
		t.Errorf("one copy of Kafka's: %v\n%s", err, text.String())
	}
}
