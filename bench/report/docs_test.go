package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
)

const page = `# Benchmarks

By hand.

<!-- weir-bench: what follows is written by ` + "`weir-bench docs`" + ` -->

old figures

<!-- weir-bench: end -->

## Older tables
`

func measuredAt(commit, model string, perSecond float64) run.Result {
	return run.Result{
		Began: time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), Commit: commit, Command: "weir-bench run one-event --out /home/me/here", Machine: run.Machine{CPUs: 2, Model: model},
		Cells: []run.Cell{{System: "some", Mode: "durable", Workload: "one-event", Rate: "max", Figures: &run.Figures{PerSecond: perSecond}}},
	}
}

func TestTheTablesOfAPageAreReplaced(t *testing.T) {
	once, err := report.Into([]byte(page), []run.Result{measuredAt("abc", "M", 1234)})
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"By hand.", "## Older tables", "Commit abc, 2 CPUs", "`weir-bench run one-event`", "### one-event, durable", "| some | max | 1234 (1234 to 1234) |"} {
		if !strings.Contains(string(once), says) {
			t.Errorf("it does not say %q:\n%s", says, once)
		}
	}
	if strings.Contains(string(once), "old figures") {
		t.Error("the old figures are still there")
	}
	twice, err := report.Into(once, []run.Result{measuredAt("abc", "M", 1234)})
	if err != nil || string(twice) != string(once) {
		t.Errorf("the second time gives another page: %v", err)
	}
}

func TestFiguresThatDoNotBelongTogetherAreRefused(t *testing.T) {
	for says, all := range map[string][]run.Result{
		"two commits":                {measuredAt("abc", "M", 1), measuredAt("abd", "M", 1)},
		"two machines":               {measuredAt("abc", "M", 1), measuredAt("abc", "N", 1)},
		"nobody can build that":      {measuredAt("unknown", "M", 1)},
		"commit \"abc" + run.Changed: {measuredAt("abc"+run.Changed, "M", 1)},
	} {
		if _, err := report.Into([]byte(page), all); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := report.Into([]byte("# Nothing\n"), []run.Result{measuredAt("abc", "M", 1)}); err == nil || !strings.Contains(err.Error(), "weir-bench docs") {
		t.Error(err)
	}
}
