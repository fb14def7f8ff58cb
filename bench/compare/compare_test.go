package compare_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/run"
)

// result has n runs of two builds, whose events a second are those given, times the run.
func result(n int, before, after float64) run.Result {
	var r run.Result
	for i := range n {
		for build, rate := range map[string]float64{"before": before, "after": after} {
			r.Cells = append(r.Cells, run.Cell{
				System: "weir-sqlite", Workload: "one-event", Rate: "max", Mode: "durable", Build: build, Run: i + 1,
				Figures: &run.Figures{PerSecond: rate + float64(i)},
			})
		}
	}
	return r
}

func table(t *testing.T, r run.Result) string {
	t.Helper()
	lines, err := compare.Lines(r, "before", "after")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := compare.Text(&text, "before", "after", lines); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestADifferenceIsClaimedOnlyFromSixPairs(t *testing.T) {
	for _, c := range []struct {
		runs          int
		before, after float64
		says          string
	}{
		{6, 1000, 1001, "no difference"},
		{6, 1000, 500, "| 0.50 | 0.0"},
		{5, 1000, 500, "none: 5 pairs, and it needs 6"},
	} {
		if text := table(t, result(c.runs, c.before, c.after)); !strings.Contains(text, c.says) {
			t.Errorf("%d pairs of %v and %v should say %q:\n%s", c.runs, c.before, c.after, c.says, text)
		}
	}
}

func TestACellWithAViolationIsNotCompared(t *testing.T) {
	r := result(6, 1000, 500)
	for i := range r.Cells {
		if r.Cells[i].Build == "after" && r.Cells[i].Run == 3 {
			r.Cells[i].Figures, r.Cells[i].Void = nil, "the generator was too slow"
		}
	}
	if lines, err := compare.Lines(r, "before", "after"); err == nil {
		t.Errorf("it is compared: %+v", lines)
	}
}
