package compare_test

import (
	"fmt"
	"math/rand/v2"
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
		{6, 1000, 1001, "(none shown) |\n\n0 of 1 figures differ"},
		{6, 1000, 500, "| 0.50 | 0.002 | **0.002** |\n\n1 of 1 figures differ"},
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

// many is a result of a profile: thirty-six cells of two builds, two figures each. Those of the
// first changed cells are a tenth worse after; the others differ by chance alone.
func many(runs, changed int, chance *rand.Rand) (r run.Result) {
	for cell := range 36 {
		for _, build := range []string{"before", "after"} {
			worse := 1.0
			if build == "after" && cell < changed {
				worse = 1.1
			}
			for i := range runs {
				r.Cells = append(r.Cells, run.Cell{
					System: "weir-sqlite", Workload: fmt.Sprint("workload-", cell), Rate: "max", Mode: "durable", Build: build, Run: i + 1,
					Figures: &run.Figures{PerSecond: (1000 + 10*chance.Float64()) / worse, CPU: (100 + chance.Float64()) * worse},
				})
			}
		}
	}
	return r
}

// Of seventy-two figures of equal builds three or four are below 0.05 one by one. A table claims
// one of them in one of twenty comparisons at most.
func TestEqualBuildsDoNotDifferHoweverManyFiguresAreCompared(t *testing.T) {
	const tables = 200
	chance := rand.New(rand.NewPCG(1, 2))
	claimed, below := 0, 0
	for range tables {
		lines, err := compare.Lines(many(6, 0, chance), "before", "after")
		if err != nil {
			t.Fatal(err)
		}
		any := false
		for _, l := range lines {
			any = any || l.Differs()
			if l.P < 0.05 {
				below++
			}
		}
		if any {
			claimed++
		}
	}
	if claimed > tables/20 {
		t.Errorf("%d of %d tables claim a difference", claimed, tables)
	}
	if below < 2*tables {
		t.Errorf("%d figures of %d tables are below 0.05: they do not differ by chance", below, tables)
	}
}

func TestWhatDiffersIsFoundAmongWhatDoesNot(t *testing.T) {
	for _, c := range []struct{ runs, changed int }{{6, 3}, {8, 1}} {
		lines, err := compare.Lines(many(c.runs, c.changed, rand.New(rand.NewPCG(3, 4))), "before", "after")
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range lines {
			if is := i < 2*c.changed; l.Differs() != is {
				t.Errorf("%d of 36 cells are worse, %d pairs: %+v", c.changed, c.runs, l)
			}
		}
	}
}
