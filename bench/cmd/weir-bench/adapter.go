package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/weir-log/weir/bench/adapter"
)

type adapterCmds struct {
	Check  adapterCheckCmd  `cmd:"" help:"Check an adapter against what the benchmark measures it by: thirty checks, each told by name when it fails."`
	Checks adapterChecksCmd `cmd:"" help:"List the checks."`
}

type adapterCheckCmd struct {
	Only    []string `help:"Make only these checks." placeholder:"CHECK"`
	Command []string `arg:"" passthrough:"" help:"The adapter: -- and a command with its arguments." placeholder:"COMMAND"`
}

// Help is below the flags.
func (adapterCheckCmd) Help() string {
	return `An adapter is a program that speaks JSON lines on its standard input and output: docs/bench-adapter.md describes them, and bench/examples has two.

Examples:

  weir-bench adapter check -- python3 adapter.py
  weir-bench adapter check --only queue-kept -- node adapter.js`
}

func (c *adapterCheckCmd) Run(ctx context.Context) error {
	command := c.Command
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	dir, err := os.MkdirTemp("", "weir-bench-adapter-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := adapter.Run(ctx, adapter.Options{Command: command, Dir: dir, Only: c.Only}, os.Stdout)
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d hold", len(r.Held), len(r.Held)+len(r.Failed))
	if len(r.Apart) > 0 {
		fmt.Printf("; %d are about what the adapter does not say that it can", len(r.Apart))
	}
	fmt.Println()
	if len(r.Failed) > 0 {
		return fmt.Errorf("the adapter fails at %s; docs/bench-adapter.md describes the protocol, and --only makes one check", strings.Join(r.Failed, ", "))
	}
	return nil
}

type adapterChecksCmd struct{}

func (adapterChecksCmd) Run() error {
	for _, c := range adapter.All() {
		fmt.Printf("%-18s %s\n", c.Name, c.Promises)
	}
	return nil
}
