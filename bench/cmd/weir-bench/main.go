// Command weir-bench measures event logs, queues and event stores: throughput, latency, and whether
// everything that was acknowledged was delivered, once and in order. A system that breaks a promise
// gets no figure.
//
//	weir-bench systems
//	weir-bench workloads
//	weir-bench run try
//	weir-bench fetch kafka message-db
//	weir-bench run p-queue p-pubsub --systems weir-postgres,pg-plain --runs 3
//	weir-bench run commit --against ./weir-bench-before --runs 6
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weir-log/weir/bench/api"
	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/fetch"
	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/meter"
	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/result"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// version is set when the program is built for others.
var version = "unknown"

type commands struct {
	Version kong.VersionFlag `help:"Print the version."`

	Run       runCmd       `cmd:"" help:"Measure workloads on systems."`
	Systems   systemsCmd   `cmd:"" help:"List the systems, and what each needs."`
	Fetch     fetchCmd     `cmd:"" help:"Fetch programs of others. Nothing else loads anything."`
	Workloads workloadsCmd `cmd:"" help:"List the workloads."`
	Show      showCmd      `cmd:"" help:"Show a result again."`
	Cost      costCmd      `cmd:"" help:"What a month costs of each system of a result, by what it used for an event."`
	Docs      docsCmd      `cmd:"" help:"Write results as tables for a page, if they are of one commit and of one machine."`
	Verify    verifyCmd    `cmd:"" help:"Check a result: its files are as they were written, and its figures are what was recorded."`
	Repeat    repeatCmd    `cmd:"" help:"Measure the cells of a result again, and compare."`
	Adapter   adapterCmds  `cmd:"" help:"Check an adapter: a program that lets a system of your own be measured."`
	API       apiCmd       `cmd:"" name:"api" help:"Serve a command API for a system's streams, as the paper's service does."`
	Cell      cellCmd      `cmd:"" hidden:"" help:"Measure one cell: it is read from standard input, and written to standard output."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var c commands
	if err := meter.Adopt(); err != nil {
		fmt.Fprintln(os.Stderr, "weir-bench: a database in the background is not counted:", err)
	}
	os.Args = helped(os.Args)
	parsed := kong.Parse(&c, kong.Name("weir-bench"), kong.Description("Measures event logs, queues and event stores, and checks what they promise. docs/bench.md is its manual."),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.UsageOnError(), kong.Vars{"version": version})
	if err := parsed.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "weir-bench:", err)
		os.Exit(1)
	}
}

// helped reads help COMMAND as COMMAND --help.
func helped(args []string) []string {
	if len(args) > 1 && args[1] == "help" {
		return append(append(args[:1:1], args[2:]...), "--help")
	}
	return args
}

// errBroken: a promise was broken, or a cell has no figure. The tables say which.
var errBroken = errors.New("not everything could be measured")

// broken counts what makes the exit code 1.
func broken(r run.Result) error {
	void, lied := 0, 0
	for _, c := range r.Cells {
		if !c.Verdict.Clean() {
			lied++
		}
		if c.Void != "" || !c.Verdict.Clean() {
			void++
		}
	}
	return fmt.Errorf("%w: %d of %d cells have no figure, of which %d broke a promise; the tables say why", errBroken, void, len(r.Cells), lied)
}

type runCmd struct {
	Workloads []string          `arg:"" optional:"" help:"Workloads, or one of the profiles try, choose, commit, p, paper, badhours and all." placeholder:"WORKLOAD"`
	Systems   []string          `help:"Systems. Default: those of the profile." placeholder:"NAME"`
	Mode      string            `help:"durable, shipped or both. Default: ${default}." enum:"durable,shipped,both" default:"durable"`
	Runs      int               `help:"Runs of each cell. Default: that of the profile, or 3." placeholder:"N"`
	Scale     float64           `help:"Multiplies the durations. Default: ${default}." default:"1"`
	Rates     []string          `help:"Rates instead of those of the workloads: max, 50%, 2900." placeholder:"RATE"`
	Seed      uint32            `help:"Decides the payloads. Default: ${default}." default:"1"`
	Out       string            `help:"Directory for the result. Default: bench-DATE." placeholder:"DIR" type:"path"`
	Against   string            `help:"Another weir-bench, of another commit: both measure in turns, and the figures are compared." placeholder:"PROGRAM" type:"existingfile"`
	File      []string          `help:"Workloads of your own: YAML files, also those of the OpenMessaging Benchmark and of the Event Store Benchmark Suite." placeholder:"FILE" type:"existingfile"`
	Keep      bool              `help:"Leave the files of the systems and of their databases in the directory for temporary files, and say where."`
	URL       map[string]string `name:"url" mapsep:"none" help:"A PostgreSQL of your own, which is neither started nor stopped: postgres=URL. Systems on PostgreSQL each get a database there, which is dropped afterwards." placeholder:"NAME=URL"`
	Data      string            `help:"The paper's file of prices, for workloads that have them (paper-…): headings and rows of seven columns with tabs between. Default: rows that are made." placeholder:"FILE" type:"existingfile"`
}

// given sets the servers that are there already.
func (c *runCmd) given(ctx context.Context, p *run.Plan) error {
	for name, address := range c.URL {
		if name != "postgres" {
			return fmt.Errorf("--url %s=…: only a PostgreSQL can be used that is there already: postgres=URL", name)
		}
		if !slices.ContainsFunc(p.Systems, system.System.OnPostgres) {
			return errors.New("--url postgres=…: none of the systems is on PostgreSQL")
		}
		for _, w := range p.Workloads {
			if k := w.Fault.Kind; k == workload.Kill || k == workload.Pause {
				return fmt.Errorf("--url postgres=…: the workload %s has a %s of the server, and one of your own is not touched; leave out the workload or --url", w.Name, k)
			}
		}
		if err := system.CheckPostgres(ctx, address, p.Modes); err != nil {
			return fmt.Errorf("--url postgres=…: %w", err)
		}
		p.Postgres = address
	}
	return nil
}

func (c *runCmd) plan() (p run.Plan, err error) {
	names, systems, scale, runs := c.Workloads, c.Systems, c.Scale, c.Runs
	if len(names) == 1 {
		if chosen, is := profiles[names[0]]; is {
			names, scale, runs = chosen.workloads, scale*chosen.scale, cmp.Or(runs, chosen.runs)
			if len(systems) == 0 {
				systems = chosen.ready(os.Stderr)
			}
		}
	}
	if len(names)+len(c.File) == 0 {
		return p, errors.New("what is to be measured? `weir-bench workloads` lists the workloads, and --file reads one of your own")
	}
	if len(systems) == 0 {
		return p, errors.New("--systems names what to measure; `weir-bench systems` lists them")
	}
	if runs == 0 {
		runs = 3
	}
	p = run.Plan{Runs: runs, Seed: c.Seed, Keep: c.Keep, Modes: []system.Mode{system.Mode(c.Mode)}}
	if c.Mode == "both" {
		p.Modes = []system.Mode{system.Durable, system.Shipped}
	}
	if c.Against != "" {
		self, err := os.Executable()
		if err != nil {
			return p, err
		}
		p.Builds = []run.Build{{Name: before, Program: c.Against}, {Name: after, Program: self}}
	}
	for _, n := range systems {
		s, err := system.Find(n)
		if err != nil && slices.ContainsFunc(systems, func(n string) bool { return strings.HasPrefix(n, system.ExecPrefix) }) {
			err = fmt.Errorf(`%w. --systems splits at commas: for one in a command write \,`, err)
		}
		if err == nil {
			err = s.Missing()
		}
		if err != nil {
			return p, err
		}
		p.Systems = append(p.Systems, s)
	}
	for _, n := range names {
		all, err := workload.Find(n)
		if err != nil {
			return p, err
		}
		for _, w := range all {
			p.Workloads = append(p.Workloads, w.Scaled(scale))
		}
	}
	for _, f := range c.File {
		text, err := os.ReadFile(f)
		if err != nil {
			return p, err
		}
		all, notes, err := workload.ParseFile(text)
		if err != nil {
			return p, fmt.Errorf("%s: %w", f, err)
		}
		for _, n := range notes {
			fmt.Fprintf(os.Stderr, "%s: %s\n", f, n)
		}
		for _, w := range all {
			p.Workloads = append(p.Workloads, w.Scaled(scale))
		}
	}
	if c.Data != "" {
		if !slices.ContainsFunc(p.Workloads, func(w workload.Workload) bool { return w.Payload == workload.Price }) {
			return p, errors.New("--data has prices, and none of the workloads does: those named paper-… do")
		}
		if p.Prices, err = load.ReadPrices(c.Data); err != nil {
			return p, fmt.Errorf("--data: %w", err)
		}
	}
	if len(c.Rates) > 0 {
		rates, err := workload.ParseRates(c.Rates)
		if err != nil {
			return p, fmt.Errorf("--rates: %w", err)
		}
		for i := range p.Workloads {
			p.Workloads[i].Rates = rates
		}
	}
	return p, nil
}

// outDate is the default name of a directory for a result.
const outDate = "bench-2006-01-02T1504"

// Help is below the flags.
func (runCmd) Help() string {
	return `Writes a directory: report.html, report.md, result.json, bench.txt for benchstat, the raw histograms and checksums of all of it. A system that broke a promise has no figure, and the exit code is 1; so it is if a cell has none for another reason. The tables say which.

Examples:

  weir-bench run try
  weir-bench run choose --systems weir-postgres,pg-plain,river --runs 3
  weir-bench run badhours --scale 0.1
  weir-bench run p-queue --rates max,50%,2900 --mode both
  weir-bench run p-queue --systems 'weir-postgres,exec:python3 adapter.py'
  weir-bench run --file 1-topic-1-partition-1kb.yaml --systems weir-sqlite,kafka
  weir-bench run commit --against ./weir-bench-before`
}

// The builds that --against compares.
const (
	before = "before"
	after  = "after"
)

func (c *runCmd) Run(ctx context.Context) error {
	p, err := c.plan()
	if err == nil {
		err = c.given(ctx, &p)
	}
	if err != nil {
		return err
	}
	if c.Out == "" {
		c.Out = time.Now().Format(outDate)
	}
	if err := result.Free(c.Out); err != nil {
		return err
	}
	r, clean, err := p.Run(ctx, os.Stderr)
	if err != nil {
		if len(r.Cells) > 0 {
			err = errors.Join(finish(c.Out, r, true), err)
		}
		return err
	}
	var more []result.Extra
	var uncompared error
	if c.Against != "" {
		lines, err := compare.Lines(r, before, after)
		if uncompared = err; err == nil {
			more = append(more, result.Extra{Name: "compare.md", Write: func(w io.Writer) error { return compare.Text(w, before, after, lines) }})
		}
	}
	return errors.Join(finish(c.Out, r, clean, more...), uncompared)
}

// finish writes a result to its directory, and shows it.
func finish(dir string, r run.Result, clean bool, more ...result.Extra) error {
	if err := result.Write(dir, r, more...); err != nil {
		return err
	}
	if err := report.Text(os.Stdout, r); err != nil {
		return err
	}
	for _, m := range more {
		if err := m.Write(os.Stdout); err != nil {
			return err
		}
	}
	fmt.Printf("\n%s\n", filepath.Join(dir, "report.html"))
	if !clean {
		return broken(r)
	}
	return nil
}

type systemsCmd struct {
	Liars bool `help:"List also those that break a promise on purpose, which test the benchmark."`
}

func (c *systemsCmd) Run() error {
	for _, s := range system.All(c.Liars) {
		ready := "ready"
		if err := s.Missing(); err != nil {
			ready = err.Error()
		}
		fmt.Printf("%-20s %-70s %s\n", s.Name, s.About, ready)
	}
	fmt.Printf("%-20s %-70s %s\n", system.ExecPrefix+"COMMAND", "a system of your own, by an adapter that you write", "docs/bench-adapter.md; `weir-bench adapter check -- COMMAND` tries one")
	return nil
}

type fetchCmd struct {
	Names []string `arg:"" help:"What to fetch; \"all\" is everything." placeholder:"NAME"`
}

func (c *fetchCmd) Run(ctx context.Context) error {
	names := c.Names
	if len(names) == 1 && names[0] == "all" {
		names = nil
		for _, p := range fetch.Peers() {
			names = append(names, p.Name)
		}
	}
	for _, n := range names {
		if err := fetch.Get(ctx, n, os.Stdout); err != nil {
			return err
		}
	}
	return nil
}

type apiCmd struct {
	System   string      `required:"" help:"The system." placeholder:"NAME"`
	Mode     system.Mode `help:"durable or shipped. Default: ${default}." enum:"durable,shipped" default:"durable"`
	Dir      string      `help:"Directory for the system's files." default:"." type:"existingdir"`
	Postgres string      `hidden:"" env:"WEIR_BENCH_POSTGRES"`
	Keep     bool        `help:"Leave the files of its database there, too." negatable:""`
	HTTP     string      `name:"http" help:"Address. Default: ${default}." default:"127.0.0.1:5093" placeholder:"HOST:PORT"`
	Project  bool        `help:"Keep a projection in memory. Default: ${default}." default:"true" negatable:""`
}

func (c *apiCmd) Run(ctx context.Context) error {
	return api.Serve(ctx, api.Options{System: c.System, Mode: c.Mode, Place: system.Place{Dir: c.Dir, Keep: c.Keep, Postgres: c.Postgres}, Address: c.HTTP, Project: c.Project})
}

type cellCmd struct{}

func (cellCmd) Run(ctx context.Context) error { return run.ServeCell(ctx, os.Stdin, os.Stdout) }

type workloadsCmd struct{}

func (workloadsCmd) Run() error {
	for _, w := range workload.All() {
		fmt.Printf("%-18s %-10s %s (%s)\n", w.Name, w.Kind, w.About, w.Source)
	}
	fmt.Println("\nProfiles, which are workloads and systems:")
	for _, name := range slices.Sorted(maps.Keys(profiles)) {
		p := profiles[name]
		fmt.Printf("%-18s %s: %s\n", name, p.about, strings.Join(p.workloads, ", "))
	}
	return nil
}

type showCmd struct {
	Result string `arg:"" help:"The directory of a result, or its result.json." type:"path"`
}

func (c *showCmd) Run() error {
	r, err := result.Read(c.Result)
	if err != nil {
		return err
	}
	return report.Text(os.Stdout, r)
}
