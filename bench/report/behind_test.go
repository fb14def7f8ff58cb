package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/internal/ledger"
)

// What is durable by the word of S3 has no flush in it, and is no weir that is ahead.
func TestThePageSaysWhereWeirIsBehind(t *testing.T) {
	cell := func(name, rate string, perSecond, offered float64, p99 time.Duration) run.Cell {
		f := &run.Figures{PerSecond: perSecond, Offered: offered}
		if p99 > 0 {
			f.Call = &run.Latency{P99: 1}
			f.EndToEnd = &run.Latency{P99: run.Duration(p99)}
		}
		return run.Cell{System: name, Mode: system.Durable, Workload: "one-event", Rate: rate, Figures: f}
	}
	lost := cell("liar", "max", 9e9, 0, 0)
	lost.Verdict, lost.Figures = ledger.Verdict{Lost: 1}, nil
	queue := cell("other", "800/s", 800, 800, time.Millisecond)
	queue.Figures.Done = &run.Latency{P99: run.Duration(40 * time.Millisecond)} // what comes last counts
	r := measuredAt("abc", "M", 1)
	r.Cells = []run.Cell{
		cell("weir-sqlite", "max", 1000, 0, 0), cell("weir-postgres", "max", 500, 0, 0), cell("weir-s3", "max", 9000, 0, 0), cell("other", "max", 4000, 0, 0), lost, cell("null", "max", 1e9, 0, 0),
		cell("weir-sqlite", "50%", 500, 500, time.Second), cell("other", "50%", 2000, 2000, time.Millisecond),
		cell("weir-sqlite", "800/s", 800, 800, 20*time.Millisecond), queue,
		cell("weir-sqlite", "900/s", 900, 900, 20*time.Millisecond), cell("other", "900/s", 700, 900, time.Millisecond), cell("third", "900/s", 895, 900, 10*time.Millisecond),
	}
	page, err := report.Into([]byte(page), []run.Result{r})
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, says := range []string{
		"in 2 of 3 comparisons",
		"| one-event, durable, max | events/s | weir-sqlite 1000 | other 4000 | 0.25 |\n| one-event, durable, 900/s | p99 | weir-sqlite 20.0 ms | third 10.0 ms | 0.50 |\n",
	} {
		if !strings.Contains(text, says) {
			t.Errorf("it does not say %q:\n%s", says, text)
		}
	}
	// The systems at one rate stand below each other, in the order of the plan.
	if a, b, c := strings.Index(text, "| weir-sqlite | max"), strings.Index(text, "| other | max"), strings.Index(text, "| weir-sqlite | 50%"); a < 0 || a > b || b > c {
		t.Errorf("the rows are at %d, %d, %d:\n%s", a, b, c, text)
	}
}
