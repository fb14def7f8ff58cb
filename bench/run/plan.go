package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Plan is what is measured.
type Plan struct {
	Systems   []system.System
	Workloads []workload.Workload
	Modes     []system.Mode
	Runs      int
	Seed      uint32
	Prices    *load.Prices // of workloads with prices; nil: they are made
	Keep      bool         // the systems' files stay, and each cell says where
	Postgres  string       // URL of a PostgreSQL that is there already, for systems on it; "": they start their own

	// Builds are programs like this one that measure the cells, in turns; none: this process does.
	Builds []Build
}

// Build is a program that measures cells.
type Build struct {
	Name    string // before, after
	Program string
}

// Schema is the form of a Result as JSON.
const Schema = "weir-bench/1"

// Result is a finished plan: all that is needed to check it, and to repeat it.
type Result struct {
	Schema  string    `json:"schema"`
	Began   time.Time `json:"began"`
	Took    string    `json:"took"`
	Command string    `json:"command"`
	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	Plan    Planned   `json:"plan"`
	Cells   []Cell    `json:"cells"`
}

// Planned is a plan as a result keeps it.
type Planned struct {
	Systems   []string            `json:"systems"`
	Workloads []workload.Workload `json:"workloads"`
	Modes     []system.Mode       `json:"modes"`
	Runs      int                 `json:"runs"`
	Seed      uint32              `json:"seed"`
	Prices    *load.Prices        `json:"prices,omitempty"`
	Given     bool                `json:"postgres_given,omitempty"` // systems on PostgreSQL used one that was there; its URL has a password
	Builds    []string            `json:"builds,omitempty"`         // programs that took turns
}

// Workload returns the workload of a name.
func (p Planned) Workload(name string) (workload.Workload, error) {
	for _, w := range p.Workloads {
		if w.Name == name {
			return w, nil
		}
	}
	return workload.Workload{}, fmt.Errorf("the plan has no workload %q", name)
}

// Again is the plan once more.
func (p Planned) Again() (again Plan, err error) {
	again = Plan{Workloads: p.Workloads, Modes: p.Modes, Runs: p.Runs, Seed: p.Seed}
	switch {
	case len(p.Systems) == 0 || len(p.Workloads) == 0:
		return again, errors.New("the result has no plan: it was written by an older weir-bench")
	case p.Given:
		return again, errors.New("the result was measured on a PostgreSQL that was there already; repeat that by its command, with that server's URL")
	case len(p.Builds) > 0:
		return again, fmt.Errorf("the result compares %s; repeat that by its command", strings.Join(p.Builds, " and "))
	}
	if again.Prices, err = p.Prices.Again(); err != nil {
		return again, fmt.Errorf("the prices that were measured: %w", err)
	}
	for _, name := range p.Systems {
		s, err := system.Find(name)
		if err == nil {
			err = s.Missing()
		}
		if err != nil {
			return again, err
		}
		again.Systems = append(again.Systems, s)
	}
	return again, nil
}

// planned is what a result keeps of the plan.
func (p Plan) planned() Planned {
	all := Planned{Workloads: p.Workloads, Modes: p.Modes, Runs: p.Runs, Seed: p.Seed, Prices: p.Prices, Given: p.Postgres != ""}
	for _, s := range p.Systems {
		all.Systems = append(all.Systems, s.Name)
	}
	for _, b := range p.Builds {
		all.Builds = append(all.Builds, b.Program)
	}
	return all
}

// Machine is where a plan was measured.
type Machine struct {
	CPUs   int          `json:"cpus"`
	Model  string       `json:"model"`
	Kernel string       `json:"kernel"`
	Memory string       `json:"memory"`
	Limits limit.Limits `json:"limits"`
	Go     string       `json:"go"`
}

// Run measures each cell of a plan, and says on progress what it does. The systems take turns, in
// the other order with every second run, each time on fresh data. A cell that fails is void, and
// says why. clean reports whether every promise was kept and no cell is void. If ctx ends, the
// result has what was measured until then.
func (p Plan) Run(ctx context.Context, progress io.Writer) (r Result, clean bool, err error) {
	r = Result{Schema: Schema, Began: time.Now().UTC(), Command: strings.Join(withoutPasswords(os.Args), " "), Commit: commit(), Plan: p.planned()}
	if r.Machine, err = machine(); err != nil {
		return r, false, err
	}
	defer func() {
		r.Took = time.Since(r.Began).Round(time.Second).String()
		r.Judge()
	}()
	clean = true
	for n := range p.Runs {
		systems := slices.Clone(p.Systems)
		if n%2 == 1 {
			slices.Reverse(systems)
		}
		for _, w := range p.Workloads {
			for _, s := range systems {
				for _, mode := range p.Modes {
					if _, has := s.Modes[mode]; !has {
						continue
					}
					cells, err := p.rates(ctx, s, mode, w, n, progress)
					for _, c := range cells {
						clean = clean && c.Verdict.Clean() && c.Void == ""
					}
					r.Cells = append(r.Cells, cells...)
					if err != nil {
						return r, false, err
					}
				}
			}
		}
	}
	return r, clean, nil
}

// Judge removes the figures of all runs of a cell if one of them broke a promise.
func (r *Result) Judge() {
	type key struct{ system, build, mode, workload, rate string }
	of := func(c Cell) key { return key{c.System, c.Build, string(c.Mode), c.Workload, c.Rate} }
	broke := map[key]int{}
	for _, c := range r.Cells {
		if !c.Verdict.Clean() {
			broke[of(c)] = c.Run
		}
	}
	for i, c := range r.Cells {
		if run, did := broke[of(c)]; did && c.Figures != nil {
			r.Cells[i].Figures, r.Cells[i].Raw, r.Cells[i].Void = nil, nil, fmt.Sprintf("run %d broke a promise", run)
		}
	}
}

// withoutPasswords are arguments without what the URL of a server has beside its host.
func withoutPasswords(args []string) (all []string) {
	for _, a := range args {
		if before, address, has := strings.Cut(a, "postgres="); has {
			a = before + "postgres=…"
			if u, err := url.Parse(address); err == nil && u.Host != "" {
				a = before + "postgres=postgres://" + u.Host + "/…"
			}
		}
		all = append(all, a)
	}
	return all
}

// builds are those that measure in a run: in the other order with every second run. The empty one
// is this process.
func (p Plan) builds(n int) []Build {
	if len(p.Builds) == 0 {
		return []Build{{}}
	}
	all := slices.Clone(p.Builds)
	if n%2 == 1 {
		slices.Reverse(all)
	}
	return all
}

// rates measures a workload on a system at each of its rates, with each build in turn: two builds
// are compared at one rate. A share is of what max gave; of two builds, of what the slower one
// took.
func (p Plan) rates(ctx context.Context, s system.System, mode system.Mode, w workload.Workload, n int, progress io.Writer) (cells []Cell, err error) {
	most := 0.0
	for _, rate := range w.Rates {
		events := rate.Seconds
		if rate.Share > 0 {
			if events = rate.Share * most; events == 0 {
				continue // max gave nothing
			}
		}
		seed := crc32.ChecksumIEEE(fmt.Appendf(nil, "%d/%s/%s/%s/%v/%d", p.Seed, s.Name, mode, w.Name, rate, n))
		one := One{System: s.Name, Mode: mode, Workload: w, Rate: rate, Events: events, Seed: seed, Prices: p.Prices, Keep: p.Keep, Postgres: p.Postgres}
		var took []float64 // at max, by each build
		for _, b := range p.builds(n) {
			c, err := one.by(ctx, b, n, progress)
			if err == nil && c.Void != "" && b.Program != "" { // one void run of twelve would end the comparison
				fmt.Fprintln(progress, "it is measured once more")
				c, err = one.by(ctx, b, n, progress)
			}
			if err != nil {
				return cells, err
			}
			if rate.Max && c.Figures != nil {
				took = append(took, c.Figures.PerSecond)
			}
			cells = append(cells, c)
		}
		if len(took) > 0 {
			most = slices.Min(took)
		}
	}
	return cells, nil
}

// by measures the cell in a run with a build, and says what came of it. A cell that fails is void:
// the other systems are measured all the same. An error is that ctx ended.
func (o One) by(ctx context.Context, b Build, n int, progress io.Writer) (c Cell, err error) {
	if b.Program == "" {
		c, err = o.Measure(ctx)
	} else {
		c, err = b.measure(ctx, o)
	}
	if err != nil && ctx.Err() != nil {
		return c, err
	}
	if err != nil {
		c = Cell{System: o.System, About: c.About, Settings: c.Settings, Mode: o.Mode, Workload: o.Workload.Name, Rate: o.Rate.String(), Seed: o.Seed, Kept: c.Kept, Void: "failed: " + err.Error()}
		if s, err := system.Find(o.System); err == nil && c.About == "" { // another build, which did not say
			c.About, c.Settings = s.About, s.Modes[o.Mode]
		}
	}
	c.Run, c.Build = n+1, b.Name
	fmt.Fprintf(progress, "%s %s %s %s, run %d%s: %s\n", c.Workload, c.System, c.Mode, c.Rate, c.Run, prefixed(", ", b.Name), summary(c)+prefixed("; its files are in ", c.Kept))
	return c, nil
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// One is a cell that is to be measured.
type One struct {
	System   string            `json:"system"`
	Mode     system.Mode       `json:"mode"`
	Workload workload.Workload `json:"workload"`
	Rate     workload.Rate     `json:"rate"`
	Events   float64           `json:"events_per_second"` // 0: as many as are taken
	Seed     uint32            `json:"seed"`
	Prices   *load.Prices      `json:"prices,omitempty"`
	Keep     bool              `json:"keep,omitempty"`
	Postgres string            `json:"postgres,omitempty"`
}

// Measure measures it in this process.
func (o One) Measure(ctx context.Context) (Cell, error) {
	s, err := system.Find(o.System)
	if err != nil {
		return Cell{}, err
	}
	return o.measure(ctx, s)
}

// ServeCell measures the cell that it reads, and writes what came of it.
func ServeCell(ctx context.Context, in io.Reader, out io.Writer) error {
	var o One
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read the cell: %w", err)
	}
	var err error
	if o.Prices, err = o.Prices.Again(); err != nil {
		return err
	}
	c, err := o.Measure(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(c)
}

// measure lets the program measure it: it reads a One from its standard input, and writes a Cell.
func (b Build) measure(ctx context.Context, o One) (c Cell, err error) {
	asked, err := json.Marshal(o)
	if err != nil {
		return c, err
	}
	cmd := exec.CommandContext(ctx, b.Program, "cell")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(asked), os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // so that it stops what it started
	told, err := cmd.Output()
	if err != nil {
		return c, fmt.Errorf("%s (%s): %w", b.Name, b.Program, err)
	}
	if err := json.Unmarshal(told, &c); err != nil {
		return c, err
	}
	if s, err := system.Find(o.System); err == nil && o.Postgres != "" && s.OnPostgres() && !c.Given {
		return c, fmt.Errorf("%s (%s) does not know how to measure on a PostgreSQL that is there already", b.Name, b.Program)
	}
	if o.Prices != nil && o.Workload.Payload == workload.Price && c.Data != o.Prices.SHA256 {
		return c, fmt.Errorf("%s (%s) does not know how to measure with prices from a file", b.Name, b.Program)
	}
	return c, nil
}

func summary(c Cell) string {
	if p := c.Problem(); p != "" {
		return p
	}
	text := fmt.Sprintf("%.0f events/s", c.Figures.PerSecond)
	for _, l := range []struct {
		name string
		of   *Latency
	}{{"answered", c.Figures.Call}, {"end to end", c.Figures.EndToEnd}, {"done", c.Figures.Done}} {
		if l.of != nil {
			text += fmt.Sprintf(", %s p50 %v p99 %v", l.name, l.of.P50, l.of.P99)
		}
	}
	if c.Moved {
		text += " (the machine's limits changed meanwhile)"
	}
	return text
}

func machine() (m Machine, err error) {
	m = Machine{CPUs: runtime.NumCPU(), Go: runtime.Version(), Model: line("/proc/cpuinfo", "model name"), Memory: line("/proc/meminfo", "MemTotal")}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	m.Limits, err = limit.Measure(os.TempDir())
	return m, err
}

// line returns what a file says after a name and a colon.
func line(file, name string) string {
	text, _ := os.ReadFile(file)
	for _, l := range strings.Split(string(text), "\n") {
		if rest, ok := strings.CutPrefix(l, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:"))
		}
	}
	return "unknown"
}

// Changed ends a commit whose files were changed when the program was built.
const Changed = " with changes"

func commit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = Changed
		}
	}
	return revision + changed
}
