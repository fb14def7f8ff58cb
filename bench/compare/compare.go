// Package compare says whether two builds of one system differ: from pairs of runs that took turns.
package compare

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"golang.org/x/perf/benchmath"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
)

// pairsLeast is how many pairs a p-value needs.
const pairsLeast = 6

// alpha is how likely it is, at most, that a table of two equal builds claims a difference.
const alpha = 0.05

// Line is a figure of one cell, of both builds.
type Line struct {
	Workload, System, Rate, Unit string
	Before, After                []float64
	P                            float64 // Mann and Whitney's; it means nothing with fewer than pairsLeast pairs
	Corrected                    float64 // P, given how many lines were looked at: Benjamini and Hochberg's
}

// Ratio is the median after by the median before.
func (l Line) Ratio() float64 { return median(l.After) / median(l.Before) }

// pairs is how many pairs of runs it has.
func (l Line) pairs() int { return min(len(l.Before), len(l.After)) }

// Differs reports whether the two builds differ by more than chance explains.
func (l Line) Differs() bool { return l.pairs() >= pairsLeast && l.Corrected < alpha }

// correct sets what each p-value is worth among all of them: of seventy figures of equal builds,
// three or four are below 0.05.
func correct(all []Line) {
	order := make([]*Line, len(all))
	for i := range all {
		order[i] = &all[i]
	}
	slices.SortFunc(order, func(a, b *Line) int { return cmp.Compare(b.P, a.P) }) // the greatest first
	least := 1.0
	for i, l := range order {
		least = min(least, l.P*float64(len(order))/float64(len(order)-i))
		l.Corrected = least
	}
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// units are the figures that are compared.
var units = []struct {
	name string
	of   func(*run.Figures) (v float64, has bool)
}{
	{"events/s", func(f *run.Figures) (float64, bool) { return f.PerSecond, f.Call == nil && f.Idle == nil }}, // at a fixed rate it is that rate
	{"answer p50 ms", func(f *run.Figures) (float64, bool) {
		return ms(f.Call, func(l *run.Latency) run.Duration { return l.P50 })
	}},
	{"answer p99 ms", func(f *run.Figures) (float64, bool) {
		return ms(f.Call, func(l *run.Latency) run.Duration { return l.P99 })
	}},
	{"end to end p99 ms", func(f *run.Figures) (float64, bool) {
		return ms(f.EndToEnd, func(l *run.Latency) run.Duration { return l.P99 })
	}},
	{"CPU µs an event", func(f *run.Figures) (float64, bool) { return f.CPU + f.ServerCPU, f.CPU > 0 }},
	{"idle CPU %", func(f *run.Figures) (float64, bool) {
		if f.Idle == nil {
			return 0, false
		}
		return 100 * (f.Idle.CPU + f.Idle.ServerCPU), true
	}},
}

func ms(l *run.Latency, of func(*run.Latency) run.Duration) (float64, bool) {
	if l == nil {
		return 0, false
	}
	return float64(of(l)) / 1e6, true
}

// Lines compares the cells of a build with those of another. A cell that broke a promise in one of
// them has no line.
func Lines(r run.Result, before, after string) (all []Line, err error) {
	rows := report.Rows(r)
	for _, a := range rows {
		if a.Build != after || a.Problem != "" {
			continue
		}
		i := slices.IndexFunc(rows, func(b report.Row) bool {
			return b.Build == before && b.Problem == "" && b.Workload == a.Workload && b.System == a.System && b.Mode == a.Mode && b.Rate == a.Rate
		})
		if i < 0 {
			continue
		}
		for _, u := range units {
			l := Line{Workload: a.Workload, System: a.System, Rate: a.Rate, Unit: u.name, Before: values(rows[i], u.of), After: values(a, u.of)}
			if len(l.Before) == 0 || len(l.After) == 0 {
				continue
			}
			test := benchmath.AssumeNothing.Compare(benchmath.NewSample(l.Before, &benchmath.DefaultThresholds), benchmath.NewSample(l.After, &benchmath.DefaultThresholds))
			l.P = test.P
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no cell has a figure of both %s and %s", before, after)
	}
	correct(all)
	return all, nil
}

func values(row report.Row, of func(*run.Figures) (float64, bool)) (all []float64) {
	for _, c := range row.Runs {
		if c.Figures == nil {
			continue
		}
		if v, has := of(c.Figures); has {
			all = append(all, v)
		}
	}
	return all
}

// Sides compares two results of one plan, the second of which is newer. It says which cells have a
// figure in one of them only.
func Sides(w io.Writer, before string, old run.Result, after string, again run.Result) error {
	var both run.Result
	for _, of := range []struct {
		name string
		r    run.Result
	}{{before, old}, {after, again}} {
		for _, c := range of.r.Cells {
			c.Build = of.name
			both.Cells = append(both.Cells, c)
		}
	}
	for _, row := range report.Rows(both) {
		if row.Problem != "" {
			if _, err := fmt.Fprintf(w, "\n\n%s, %s, %s, %s has no figure %s: %s", row.Workload, row.System, row.Mode, row.Rate, row.Build, row.Problem); err != nil {
				return err
			}
		}
	}
	fmt.Fprintln(w)
	lines, err := Lines(both, before, after)
	if err != nil {
		_, err = fmt.Fprintf(w, "\nNothing can be compared: %v.\n", err)
		return err
	}
	return Text(w, before, after, lines)
}

// Text writes a table, and what it claims. With fewer than six pairs it has no p-value.
func Text(w io.Writer, before, after string, all []Line) error {
	fmt.Fprintf(w, "\n| workload | system | rate | figure | %[1]s | %[2]s | %[2]s / %[1]s | p | p among %[3]d |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", before, after, len(all))
	differ, enough := 0, true
	for _, l := range all {
		p, corrected := fmt.Sprintf("none: %d pairs, and it needs %d", l.pairs(), pairsLeast), "–"
		if enough = enough && l.pairs() >= pairsLeast; l.pairs() >= pairsLeast {
			p, corrected = fmt.Sprintf("%.3f", l.P), fmt.Sprintf("%.3f (none shown)", l.Corrected)
		}
		if l.Differs() {
			differ, corrected = differ+1, fmt.Sprintf("**%.3f**", l.Corrected)
		}
		if _, err := fmt.Fprintf(w, "| %s | %s | %s | %s | %.4g | %.4g | %.2f | %s | %s |\n", l.Workload, l.System, l.Rate, l.Unit, median(l.Before), median(l.After), l.Ratio(), p, corrected); err != nil {
			return err
		}
	}
	if !enough {
		return nil
	}
	_, err := fmt.Fprintf(w, "\n%d of %d figures differ: p among %[2]d, which is corrected for that number, is below %v.\n", differ, len(all), alpha)
	return err
}
