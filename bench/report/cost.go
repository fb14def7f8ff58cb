package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/cost"
)

// Costs are what a month is computed for.
type Costs struct {
	Prices    cost.Prices
	Events    []float64     // a second
	Retention time.Duration // of logs and streams; a queue keeps nothing
	Cores     int           // of a machine
}

// linger is that of a store on S3 whose URL says nothing else (docs/s3.md).
const linger = 250 * time.Millisecond

// Cost writes what a month of each system costs, by what it was measured to use for an event.
func Cost(w io.Writer, r run.Result, c Costs) error {
	fmt.Fprintf(w, "%s, %s; machines of %d processors: %s; one copy of each event of logs and streams, kept %v\n", c.Prices.What, c.Prices.AsOf, c.Cores, c.Prices.Machine, c.Retention)
	last := ""
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
			fmt.Fprintf(w, "\n%s, events of %d bytes\n\n| system | at rate | CPU µs an event | stored B an event |", head, of.Size)
			for _, events := range c.Events {
				fmt.Fprintf(w, " %.0f a second: machines | %s a month | a million |", events, c.Prices.Currency)
			}
			fmt.Fprintf(w, "\n|%s\n", strings.Repeat(" --- |", 4+3*len(c.Events)))
		}
		if _, err := fmt.Fprintln(w, c.line(row, of)); err != nil {
			return err
		}
	}
	return nil
}

func (c Costs) line(row Row, of workload.Workload) string {
	if problem := row.Problem; problem != "" || row.given() {
		problem = cmp.Or(problem, "what its server used is not known")
		return fmt.Sprintf("| %s | %s | %s |%s", row.Name(), row.Rate, problem, strings.Repeat(" – |", 1+3*len(c.Events)))
	}
	_, cpu, _ := Spread(row, func(f *run.Figures) float64 { return f.CPU + f.ServerCPU })
	_, stored, _ := Spread(row, func(f *run.Figures) float64 { return f.Stored })
	used := cost.Used{System: row.Name(), CPU: time.Duration(cpu * float64(time.Microsecond)), Stored: stored, Cores: c.Cores}
	if strings.HasPrefix(row.System, "weir-s3") {
		used.Bucket = &cost.Bucket{Processes: 1, Linger: linger}
	}
	text := fmt.Sprintf("| %s | %s | %.0f | %s |", row.Name(), row.Rate, cpu, orDash(stored))
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
