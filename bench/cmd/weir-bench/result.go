package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/weir-log/weir/bench/compare"
	"github.com/weir-log/weir/bench/result"
	"github.com/weir-log/weir/bench/run"
)

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
	plan.Runs = cmp.Or(c.Runs, plan.Runs)
	again, clean, err := plan.Run(ctx, os.Stderr)
	if err != nil {
		return err
	}
	return finish(cmp.Or(c.Out, time.Now().Format(outDate)), again, clean, result.Extra{Name: "repeat.md", Write: func(w io.Writer) error { return side(w, old, again) }})
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
