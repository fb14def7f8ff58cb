package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/result"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/internal/cost"
)

type costCmd struct {
	Dir       string        `arg:"" help:"The directory of a result." type:"existingdir"`
	Events    []float64     `help:"Events a second. Default: ${default}." default:"10,500,5000" placeholder:"N"`
	Retention time.Duration `help:"How long events of logs and streams are kept. Default: ${default}." default:"168h"`
	Cores     int           `help:"Processors of a machine, which are like those of the result's. Default: ${default}." default:"2"`
	Copies    int           `help:"Copies of each event. Default: as many as leave enough of them when a machine is lost: three of Kafka, NATS and KurrentDB, two of a database, one of a file; 1 is what was measured." placeholder:"N"`
	Machine   *float64      `help:"What a machine costs a month. Default: as the prices have it." placeholder:"PRICE"`
	Prices    string        `help:"A file with other prices; docs/cost.md shows its form." type:"existingfile" placeholder:"FILE"`
}

func (c *costCmd) Run() error {
	prices := cost.Default()
	if c.Prices != "" {
		text, err := os.ReadFile(c.Prices)
		if err != nil {
			return err
		}
		if prices, err = cost.ParsePrices(text); err != nil {
			return fmt.Errorf("the prices in %s: %w; docs/cost.md shows the form of the file", c.Prices, err)
		}
	}
	if c.Machine != nil {
		prices.SetMachine("priced by --machine", *c.Machine)
	}
	for _, n := range c.Events {
		if n <= 0 {
			return fmt.Errorf("--events %v: it must be more than 0", n)
		}
	}
	if c.Cores < 1 || c.Retention < 0 || c.Copies < 0 {
		return fmt.Errorf("--cores %d, --retention %v and --copies %d: they must be at least 1, 0 and 0", c.Cores, c.Retention, c.Copies)
	}
	if _, err := result.Verify(c.Dir); err != nil {
		return fmt.Errorf("%s is not what was measured, so that nothing is computed from it:\n%w", c.Dir, err)
	}
	r, err := result.Read(c.Dir)
	if err != nil {
		return err
	}
	return report.Cost(os.Stdout, r, report.Costs{Prices: prices, Events: c.Events, Retention: c.Retention, Cores: c.Cores, Copies: c.Copies})
}

type docsCmd struct {
	Dirs []string `arg:"" help:"Directories of results." type:"existingdir"`
	Into string   `help:"A page in whose marked section the tables are written; the rest of it stays. Default: they are printed." type:"existingfile" placeholder:"FILE"`
}

func (c *docsCmd) Run() error {
	var all []run.Result
	for _, dir := range c.Dirs {
		if _, err := result.Verify(dir); err != nil {
			return fmt.Errorf("%s is not what was measured:\n%w", dir, err)
		}
		r, err := result.Read(dir)
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	if c.Into == "" {
		return report.Docs(os.Stdout, all)
	}
	page, err := os.ReadFile(c.Into)
	if err == nil {
		page, err = report.Into(page, all)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", c.Into, err)
	}
	return os.WriteFile(c.Into, page, 0o644)
}

type verifyCmd struct {
	Dir string `arg:"" help:"The directory of a result." type:"existingdir"`
}

func (c *verifyCmd) Run() error {
	v, err := result.Verify(c.Dir)
	if err != nil {
		return fmt.Errorf("%s is not what was measured:\n%w", c.Dir, err)
	}
	fmt.Printf("%d files are as they were written; %d of %d cells have figures, and they are what was recorded\n", v.Files, v.Figures, v.Cells)
	return nil
}

type repeatCmd struct {
	Dir  string `arg:"" help:"The directory of a result." type:"existingdir"`
	Runs int    `help:"Runs of each cell. Default: as many as the result has." placeholder:"N"`
	Out  string `help:"Directory for the new result. Default: bench-DATE." placeholder:"DIR" type:"path"`
}

// The two sides that repeat compares.
const (
	there = "there"
	here  = "here"
)

func (c *repeatCmd) Run(ctx context.Context) error {
	if _, err := result.Verify(c.Dir); err != nil {
		return fmt.Errorf("%s is not what was measured, so it is not repeated:\n%w", c.Dir, err)
	}
	old, err := result.Read(c.Dir)
	if err != nil {
		return err
	}
	plan, err := old.Plan.Again()
	if err != nil {
		return fmt.Errorf("%s: %w", c.Dir, err)
	}
	into := cmp.Or(c.Out, time.Now().Format(outDate))
	if err := result.Free(into); err != nil {
		return err
	}
	plan.Runs = cmp.Or(c.Runs, plan.Runs)
	again, clean, err := plan.Run(ctx, os.Stderr)
	if err != nil {
		return err // what is not whole is not compared
	}
	return finish(into, again, clean, result.Extra{Name: "repeat.md", Write: func(w io.Writer) error { return side(w, old, again) }})
}

// side writes what both results say of each cell, side by side.
func side(w io.Writer, old, again run.Result) error {
	for _, of := range []struct {
		name string
		r    run.Result
	}{{there, old}, {here, again}} {
		m := of.r.Machine
		if _, err := fmt.Fprintf(w, "\n%s: %s, commit %s, %d CPUs, %s, a flush of 4 KiB %v", of.name, of.r.Began.Format(time.DateTime), of.r.Commit, m.CPUs, m.Model, m.Limits.Flush4K); err != nil {
			return err
		}
	}
	return compare.Sides(w, there, old, here, again)
}
