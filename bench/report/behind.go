package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
)

// lead is a rate of a table at which a system of others is ahead of every weir, by what is compared
// there.
type lead struct {
	where       string // workload, mode and rate
	what        string // what is compared
	ours, other string // the best of each, with its figure
	ratio       float64
}

// behind returns where weir is behind, the farthest first, and how many comparisons there were. At
// rate max events a second are compared; at a rate that every system was given, the p99 of what
// comes last: an acknowledgement of a queue, the arrival at a reader, an answer. Half of what each
// took is another load for each, and is not compared.
func behind(r run.Result) (leads []lead, compared int) {
	rows := Rows(r)
	for len(rows) > 0 {
		head := rows[0]
		n := slices.IndexFunc(rows, func(x Row) bool { return x.Workload != head.Workload || x.Mode != head.Mode || x.Rate != head.Rate })
		if n < 0 {
			n = len(rows)
		}
		same := rows[:n]
		rows = rows[n:]
		of, what, say := compare(head)
		if of == nil {
			continue
		}
		var ours, other *Row
		for i, x := range same {
			best := &other
			if strings.HasPrefix(x.System, "weir-") {
				best = &ours
			}
			if x.comparable() && of(x) > 0 && (*best == nil || of(x) > of(**best)) {
				*best = &same[i]
			}
		}
		if ours == nil || other == nil {
			continue
		}
		compared++
		if ratio := of(*ours) / of(*other); ratio < 1 {
			leads = append(leads, lead{
				where: head.Workload + ", " + head.Mode + ", " + head.Rate, what: what, ratio: ratio,
				ours: ours.Name() + " " + say(*ours), other: other.Name() + " " + say(*other),
			})
		}
	}
	slices.SortStableFunc(leads, func(a, b lead) int { return cmp.Compare(a.ratio, b.ratio) })
	return leads, compared
}

// comparable reports whether the row has a figure of a system that took what was offered.
func (r Row) comparable() bool {
	if r.Problem != "" || r.idle() || r.System == "null" || r.unflushed() {
		return false
	}
	_, median, _ := Spread(r, PerSecond)
	_, offered, _ := Spread(r, func(f *run.Figures) float64 { return f.Offered })
	return median > 0 && taken(median, offered) == ""
}

// unflushed reports whether the row is durable by the word of S3, and what stood for S3 flushed
// nothing.
func (r Row) unflushed() bool {
	s, err := system.Find(r.System)
	return err == nil && s.OnS3() && r.Mode == string(system.Durable)
}

// compare returns what is compared in rows like this one, more is better, and how a row says it;
// nil: nothing is.
func compare(like Row) (of func(Row) float64, what string, say func(Row) string) {
	switch {
	case like.Rate == "max":
		of = func(r Row) float64 { _, median, _ := Spread(r, PerSecond); return median }
		return of, "events/s", func(r Row) string { return fmt.Sprintf("%.0f", of(r)) }
	case strings.HasSuffix(like.Rate, "/s"):
		of = func(r Row) float64 {
			_, p99, _ := Spread(r, func(f *run.Figures) float64 {
				if l := last(f); l != nil {
					return float64(l.P99)
				}
				return 0
			})
			if p99 == 0 {
				return 0
			}
			return 1 / p99
		}
		return of, "p99", func(r Row) string { return latency(r, last, func(l *run.Latency) run.Duration { return l.P99 }) }
	}
	return nil, "", nil
}

// last is the latency of what comes last of an event.
func last(f *run.Figures) *run.Latency {
	for _, l := range []*run.Latency{f.Done, f.EndToEnd, f.Call} {
		if l != nil {
			return l
		}
	}
	return nil
}

// Behind writes at which rates a system of others is ahead of every weir.
func Behind(w io.Writer, all []run.Result) {
	var leads []lead
	compared := 0
	for _, r := range all {
		l, n := behind(r)
		leads, compared = append(leads, l...), compared+n
	}
	if compared == 0 {
		return
	}
	fmt.Fprintf(w, "\nWhere weir is behind: in %d of %d comparisons a system of others is ahead of every weir.\n", len(leads), compared)
	if len(leads) == 0 {
		return
	}
	fmt.Fprint(w, "\n| workload, mode, rate | compared | best weir | best of the others | ratio |\n| --- | --- | --- | --- | --- |\n")
	for _, l := range leads {
		fmt.Fprintf(w, "| %s | %s | %s | %s | %.2f |\n", l.where, l.what, l.ours, l.other, l.ratio)
	}
}
