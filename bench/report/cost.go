package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/cost"
)

// Costs are what a month is computed for.
type Costs struct {
	Prices    cost.Prices
	Events    []float64     // a second
	Retention time.Duration // of logs and streams; a queue keeps nothing
	Cores     int           // of a machine
	Copies    int           // of each event; 0: as many as leave enough of them when a machine is lost
}

// copies are those of a system.
func (c Costs) copies(name string) int {
	s, err := system.Find(name)
	if c.Copies > 0 || err != nil {
		return max(1, c.Copies)
	}
	return s.Copies()
}

// linger is that of a store on S3 whose URL says nothing else (docs/s3.md).
const linger = 250 * time.Millisecond

// bucket is how a system uses a bucket; nil: it has none.
func bucket(name string) *cost.Bucket {
	switch store, by, _ := strings.Cut(name, "+"); store {
	case "weir-s3":
		return &cost.Bucket{Processes: 1, Linger: linger, Kafka: by == "kafka"}
	case "weir-s3-10ms":
		return &cost.Bucket{Processes: 1, Linger: system.S3Linger, Kafka: by == "kafka"}
	}
	return nil
}

// seen are the requests that a row's runs made; nil: they were not counted.
func seen(row Row, of workload.Workload) *cost.Seen {
	if row.Problem != "" || row.Runs[0].Figures.Requests == nil {
		return nil
	}
	at := func(of func(run.Requests) float64) float64 {
		_, median, _ := Spread(row, func(f *run.Figures) float64 {
			if f.Requests == nil {
				return 0
			}
			return of(*f.Requests)
		})
		return median
	}
	_, events, _ := Spread(row, PerSecond)
	return &cost.Seen{Load: cost.Load{Bytes: events * float64(of.Size), Records: events}, For: of.Phases.Warm + of.Phases.Measure, Requests: cost.Requests{
		Puts:  at(func(r run.Requests) float64 { return r.Puts }),
		Gets:  at(func(r run.Requests) float64 { return r.Gets }),
		Lists: at(func(r run.Requests) float64 { return r.Lists }),
	}}
}

// Cost writes what a month of each system costs, by what it was measured to use for an event.
func Cost(w io.Writer, r run.Result, c Costs) error {
	fmt.Fprintf(w, "%s, %s; machines of %d processors: %s; events of logs and streams are kept %v; a bucket has copies of its own\n", c.Prices.What, c.Prices.AsOf, c.Cores, c.Prices.Machine, c.Retention)
	last := ""
	var counted []string // requests
	for _, row := range Rows(r) {
		if row.idle() {
			continue
		}
		of, err := r.Plan.Workload(row.Workload)
		if err != nil {
			return err
		}
		if head := row.Workload + ", " + row.Mode; head != last {
			last = head
			fmt.Fprintf(w, "\n%s, events of %d bytes\n\n| system | at rate | copies | CPU µs an event | stored B an event |", head, of.Size)
			for _, events := range c.Events {
				fmt.Fprintf(w, " %.0f a second: machines | %s a month | a million |", events, c.Prices.Currency)
			}
			fmt.Fprintf(w, "\n|%s\n", strings.Repeat(" --- |", 5+3*len(c.Events)))
		}
		if _, err := fmt.Fprintln(w, c.line(row, of)); err != nil {
			return err
		}
		if b := bucket(row.System); b != nil && row.Problem == "" {
			line := fmt.Sprintf("%s, %s, %s: the requests are those that docs/cost.md computes; none were counted", row.Workload, row.Name(), row.Rate)
			if s := seen(row, of); s != nil {
				computed := b.Requests(s.Load)
				line = fmt.Sprintf("%s, %s, %s: at %.0f a second the bucket had %.1f PUTs and LISTs and %.1f GETs a second; docs/cost.md computes %.1f and %.1f, and for other loads the bill has them in this proportion",
					row.Workload, row.Name(), row.Rate, s.Load.Records, s.Requests.Puts+s.Requests.Lists, s.Requests.Gets, computed.Puts+computed.Lists, computed.Gets)
				if s.Short() {
					line += fmt.Sprintf(", but no fewer than computed: they were counted for %v, and some come once in 500 commits", s.For)
				}
			}
			counted = append(counted, line)
		}
	}
	for _, line := range counted {
		if _, err := fmt.Fprintf(w, "\n%s.\n", line); err != nil {
			return err
		}
	}
	return nil
}

func (c Costs) line(row Row, of workload.Workload) string {
	if problem := row.Problem; problem != "" || row.given() {
		problem = cmp.Or(problem, "what its server used is not known")
		return fmt.Sprintf("| %s | %s | %s |%s", row.Name(), row.Rate, problem, strings.Repeat(" – |", 2+3*len(c.Events)))
	}
	_, cpu, _ := Spread(row, func(f *run.Figures) float64 { return f.CPU + f.ServerCPU })
	_, stored, _ := Spread(row, func(f *run.Figures) float64 { return f.Stored })
	used := cost.Used{System: row.Name(), CPU: time.Duration(cpu * float64(time.Microsecond)), Stored: stored, Cores: c.Cores, Copies: c.copies(row.System), Bucket: bucket(row.System), Seen: seen(row, of)}
	text := fmt.Sprintf("| %s | %s | %d | %.0f | %s |", row.Name(), row.Rate, used.Copies, cpu, orDash(stored))
	for _, events := range c.Events {
		load := cost.Load{Bytes: events * float64(of.Size), Records: events, Reads: float64(max(1, of.Groups)), Retention: c.Retention}
		if of.Kind == workload.Queue {
			load.Retention = 0
		}
		bill := c.Prices.Measured(load, used)
		text += fmt.Sprintf(" %.0f | %.0f | %.3f |", bill.Items[0].Count, bill.Total(), load.Million(bill.Total()))
	}
	return text
}

func orDash(n float64) string {
	if n == 0 {
		return "–"
	}
	return fmt.Sprintf("%.0f", n)
}
