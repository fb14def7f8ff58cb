// Package report shows results: as text, as lines for benchstat, and as one HTML file.
package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/workload"
)

// Row is the runs of one cell, put together.
type Row struct {
	Workload, System, Build, Mode, Rate string
	Load                                workload.Workload // the zero value: an older result has no plan
	Runs                                []run.Cell
	Problem                             string // of one of the runs: then the row has no figure
	kept                                bool   // no run broke a promise
}

// Name is the system's, and which build it was if there were two.
func (r Row) Name() string {
	if r.Build == "" {
		return r.System
	}
	return r.System + " (" + r.Build + ")"
}

// has reports whether a cell is one of the row's runs.
func (r Row) has(c run.Cell) bool {
	return r.Workload == c.Workload && r.System == c.System && r.Build == c.Build && r.Mode == string(c.Mode) && r.Rate == c.Rate
}

// idle reports whether nothing was sent.
func (r Row) idle() bool { return r.Problem == "" && r.Runs[0].Figures.Idle != nil }

// given reports whether the row was measured on a server that was there already: its processors and
// its disk are in no figure.
func (r Row) given() bool {
	return slices.ContainsFunc(r.Runs, func(c run.Cell) bool { return c.Given })
}

// notRun says why the system was not measured; "": it was.
func (r Row) notRun() string { return r.Runs[0].NotRun }

// Rows puts the runs of each cell together, in the order of the plan: the systems at one rate stand
// below each other.
func Rows(r run.Result) []Row {
	var rows []Row
	for _, c := range r.Cells {
		i := slices.IndexFunc(rows, func(x Row) bool { return x.has(c) })
		if i < 0 {
			i = len(rows)
			load, _ := r.Plan.Workload(c.Workload)
			rows = append(rows, Row{Workload: c.Workload, System: c.System, Build: c.Build, Mode: string(c.Mode), Rate: c.Rate, Load: load, kept: true})
		}
		rows[i].Runs = append(rows[i].Runs, c)
		if rows[i].Problem == "" || rows[i].kept && !c.Verdict.Clean() { // a broken promise outranks a void run
			rows[i].Problem = c.Problem()
		}
		rows[i].kept = rows[i].kept && c.Verdict.Clean()
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(first(r, a.Workload, ""), first(r, b.Workload, "")), cmp.Compare(a.Mode, b.Mode),
			cmp.Compare(first(r, a.Workload, a.Rate), first(r, b.Workload, b.Rate)),
		)
	})
	return rows
}

// Table has the rows of a workload in a mode.
type Table struct {
	Head   string
	Rows   []Row
	NotRun []string // why systems were not measured
}

// Tables returns the rows in tables.
func Tables(r run.Result) (all []Table) {
	for _, row := range Rows(r) {
		if head := row.Workload + ", " + row.Mode; len(all) == 0 || all[len(all)-1].Head != head {
			all = append(all, Table{Head: head})
		}
		t := &all[len(all)-1]
		switch why := row.notRun(); {
		case why == "":
			t.Rows = append(t.Rows, row)
		case !slices.Contains(t.NotRun, why):
			t.NotRun = append(t.NotRun, why)
		}
	}
	return all
}

// first is where the plan has a workload first, at a rate; "": at any.
func first(r run.Result, workload, rate string) int {
	return slices.IndexFunc(r.Cells, func(c run.Cell) bool { return c.Workload == workload && (rate == "" || c.Rate == rate) })
}

// Spread is the least, the median and the most of the runs.
func Spread(row Row, of func(*run.Figures) float64) (low, median, high float64) {
	var all []float64
	for _, c := range row.Runs {
		if c.Figures != nil {
			all = append(all, of(c.Figures))
		}
	}
	return spread(all)
}

func spread(all []float64) (low, median, high float64) {
	if len(all) == 0 {
		return 0, 0, 0
	}
	slices.Sort(all)
	return all[0], all[len(all)/2], all[len(all)-1]
}

// ratios are the two columns that compare a row with its machine: the medians of its runs.
func ratios(row Row) (answers, p50 string) {
	var ofAnswers, ofBytes, ofP50 []float64
	for _, c := range row.Runs {
		if r := c.Ratios(row.Load); r != nil {
			ofAnswers, ofBytes, ofP50 = append(ofAnswers, r.Answers), append(ofBytes, r.Bytes), append(ofP50, r.P50)
		}
	}
	answers, p50 = "–", "–"
	if _, median, _ := spread(ofAnswers); median > 0 {
		answers = fmt.Sprintf("%.2f", median)
		if _, share, _ := spread(ofBytes); share > 0 { // the size of prices differs
			answers += fmt.Sprintf(" (%.1f %%)", 100*share)
		}
	}
	if _, median, _ := spread(ofP50); median > 0 {
		p50 = fmt.Sprintf("%.2f", median)
	}
	return answers, p50
}

// changed says in how many of a row's runs the machine's limits changed meanwhile.
func changed(row Row) string {
	n := 0
	for _, c := range row.Runs {
		if c.Before.Differ(c.After) {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; the machine's limits changed in %d of %d runs", n, len(row.Runs))
}

// PerSecond is a row's events a second.
func PerSecond(f *run.Figures) float64 { return f.PerSecond }

// latency returns the median of a latency over the runs, in words; a dash where there is none.
func latency(row Row, of func(*run.Figures) *run.Latency, at func(*run.Latency) run.Duration) string {
	_, median, _ := Spread(row, func(f *run.Figures) float64 {
		if l := of(f); l != nil {
			return float64(at(l))
		}
		return 0
	})
	if median == 0 {
		return "–"
	}
	return run.Duration(median).String()
}

// Text writes a table for each workload and mode. A row with a violation has no figure.
func Text(w io.Writer, r run.Result) error {
	fmt.Fprintf(w, "%d CPUs, %s, %s, commit %s\nflush of 4 KiB %v, of 1 MiB %v, loopback %v, copy %.0f MiB/s\n",
		r.Machine.CPUs, r.Machine.Model, r.Machine.Memory, cmp.Or(r.Commit, "unknown"), r.Machine.Limits.Flush4K, r.Machine.Limits.Flush1M, r.Machine.Limits.Loopback, r.Machine.Limits.Copy)
	if err := tables(w, r, ""); err != nil {
		return err
	}
	return systems(w, "", r)
}

// tables writes the tables below headings that begin with a prefix, and then what is in no column.
func tables(w io.Writer, r run.Result, prefix string) error {
	for _, t := range Tables(r) {
		fmt.Fprintf(w, "\n%s%s\n\n| %s |\n|%s\n", prefix, t.Head, strings.Join(headings, " | "), strings.Repeat(" --- |", len(headings)))
		for _, row := range t.Rows {
			fmt.Fprintln(w, "| "+oneLine.Replace(strings.Join(columns(row), "\x00"))+" |")
		}
		if len(t.NotRun) > 0 {
			fmt.Fprintf(w, "\nNot run: %s.\n", strings.Join(t.NotRun, "; "))
		}
	}
	for _, row := range Rows(r) {
		for _, line := range notes(row) {
			if _, err := fmt.Fprintf(w, "\n%s, %s, %s: %s\n", row.Workload, row.Name(), row.Rate, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// oneLine keeps a row of a table in its line and in its columns, whatever a failure says.
var oneLine = strings.NewReplacer("\r", "", "\n", " ", "|", `\|`, "\x00", " | ")

// notes say what is in no column, a line for each run: when projections had events, what reading
// costs, and what a fault did to a system.
func notes(row Row) (lines []string) {
	if row.Problem != "" {
		return nil
	}
	for _, c := range row.Runs {
		f := c.Figures
		var said []string
		for _, w := range f.Windows {
			text := fmt.Sprintf("%s %.0f events/s%s", w.Name, w.PerSecond, taken(w.PerSecond, f.Offered))
			if w.Latency != nil {
				text += fmt.Sprintf(", p50 %v p99 %v max %v", w.Latency.P50, w.Latency.P99, w.Latency.Max)
			}
			if w.Size > 0 {
				text += fmt.Sprintf(", %d MB on disk at its end", w.Size/1e6)
			}
			said = append(said, text)
		}
		if len(f.Recovered) > 0 {
			said = append(said, fmt.Sprintf("first answer after a kill: %v", f.Recovered))
		}
		if len(said) > 0 || f.Repeated > 0 {
			said = append(said, fmt.Sprintf("%d calls refused or of unknown outcome, %d deliveries again before they were acknowledged, 0 lost", f.Refused, f.Repeated))
		}
		if p := f.Projected; p != nil {
			said = append(said, fmt.Sprintf("projected %v after the command arrived in the mean, p50 %v p99 %v max %v", p.Mean, p.P50, p.P99, p.Max))
		}
		if f.Conflicts > 0 {
			said = append(said, fmt.Sprintf("%d conflicts", f.Conflicts))
		}
		if i := f.Idle; i != nil {
			others := fmt.Sprintf("%.2f %% and %d MiB in others", 100*i.ServerCPU, f.ServerRSS>>20)
			if c.Given {
				others = "what its server used is not known"
			}
			said = append(said, fmt.Sprintf("idle: %.2f %% of a processor and %d MiB of memory in the client's process, %s, %.0f bytes written a second",
				100*i.CPU, f.RSS>>20, others, i.Written))
		}
		if r := f.Readings; r != nil {
			said = append(said, fmt.Sprintf("with %d events: a stream of 100 (read %d times) p50 %v p99 %v, the last 100 of the longest (%d times) p50 %v p99 %v, %.0f bytes on disk each, a replay of %.0f a second",
				r.Entries, r.Short.Count, r.Short.P50, r.Short.P99, r.Tail.Count, r.Tail.P50, r.Tail.P99, r.Bytes, r.Replay))
		}
		if len(said) > 0 {
			lines = append(lines, strings.Join(said, "; "))
		}
	}
	return lines
}

// takenLeast is the share of the rate that a system must take: below that its row says so.
const takenLeast = 0.99

// taken says which share of what was offered a system took, if that is less than it must be.
func taken(perSecond, offered float64) string {
	if offered == 0 || perSecond >= takenLeast*offered {
		return ""
	}
	return fmt.Sprintf(" (%.1f %% of the rate)", 100*perSecond/offered)
}

// headings are those of columns.
var headings = []string{
	"system", "rate", "events/s (least to most)", "answer p50", "p99", "end to end p50", "p99", "max", "done p99",
	"answers a flush (of the disk's MB/s)", "answer p50 in flushes", "CPU µs an event, client", "servers", "written B an event", "checked",
}

func columns(row Row) []string {
	instead := func(text string) []string {
		return append([]string{row.Name(), row.Rate, text}, slices.Repeat([]string{"–"}, len(headings)-3)...)
	}
	if row.Problem != "" {
		return instead(row.Problem)
	}
	if row.idle() {
		return instead("idle")
	}
	low, median, high := Spread(row, PerSecond)
	_, offered, _ := Spread(row, func(f *run.Figures) float64 { return f.Offered })
	_, cpu, _ := Spread(row, func(f *run.Figures) float64 { return f.CPU })
	_, servers, _ := Spread(row, func(f *run.Figures) float64 { return f.ServerCPU })
	_, written, _ := Spread(row, func(f *run.Figures) float64 { return f.Written })
	delivered := int64(0)
	for _, c := range row.Runs {
		delivered += c.Verdict.Delivered
	}
	call := func(f *run.Figures) *run.Latency { return f.Call }
	end := func(f *run.Figures) *run.Latency { return f.EndToEnd }
	done := func(f *run.Figures) *run.Latency { return f.Done }
	p50 := func(l *run.Latency) run.Duration { return l.P50 }
	p99 := func(l *run.Latency) run.Duration { return l.P99 }
	most := func(l *run.Latency) run.Duration { return l.Max }
	answers, flushes := ratios(row)
	ofServers := fmt.Sprintf("%.0f", servers)
	if row.given() {
		ofServers = "–"
	}
	return []string{
		row.Name(), row.Rate, fmt.Sprintf("%.0f (%.0f to %.0f)%s", median, low, high, taken(median, offered)), latency(row, call, p50), latency(row, call, p99),
		latency(row, end, p50), latency(row, end, p99), latency(row, end, most), latency(row, done, p99), answers, flushes,
		fmt.Sprintf("%.0f", cpu), ofServers, fmt.Sprintf("%.0f", written), fmt.Sprintf("%d delivered once%s", delivered, changed(row)),
	}
}

// Benchstat writes a line for each clean run, in the format of Go's benchmarks.
func Benchstat(w io.Writer, r run.Result) error {
	fmt.Fprintln(w, "Unit events/s better=higher\nUnit p50-ms better=lower\nUnit p99-ms better=lower\nUnit cpu-µs/event better=lower\nUnit written-B/event better=lower")
	rows := Rows(r)
	for _, c := range r.Cells {
		if c.Figures == nil || c.Figures.Idle != nil || rowOf(rows, c).Problem != "" {
			continue
		}
		fmt.Fprintf(w, "Benchmark%s/system=%s%s/mode=%s/rate=%s 1 %.0f events/s", name(c.Workload), noBlanks.Replace(c.System), build(c), c.Mode, strings.ReplaceAll(c.Rate, "/", "-per-"), c.Figures.PerSecond)
		if l := cmp.Or(c.Figures.Done, c.Figures.EndToEnd, c.Figures.Call); l != nil {
			fmt.Fprintf(w, " %.3f p50-ms %.3f p99-ms", float64(l.P50)/1e6, float64(l.P99)/1e6)
		}
		used := fmt.Sprintf(" %.0f cpu-µs/event %.0f written-B/event", c.Figures.CPU+c.Figures.ServerCPU, c.Figures.Written)
		if c.Given {
			used = "" // only the client's is known
		}
		if _, err := fmt.Fprintln(w, used); err != nil {
			return err
		}
	}
	return nil
}

// rowOf is the row that a cell is in.
func rowOf(rows []Row, c run.Cell) Row {
	return rows[slices.IndexFunc(rows, func(r Row) bool { return r.has(c) })]
}

// noBlanks makes a part of a benchmark's name of a command, which has blanks and slashes.
var noBlanks = strings.NewReplacer(" ", "_", "\t", "_", "\n", "_", "/", "_")

func build(c run.Cell) string {
	if c.Build == "" {
		return ""
	}
	return "/build=" + c.Build
}

// name makes the name of a Go benchmark: p-queue is PQueue.
func name(workload string) (n string) {
	for _, part := range strings.Split(workload, "-") {
		if part != "" {
			n += strings.ToUpper(part[:1]) + part[1:]
		}
	}
	return n
}
