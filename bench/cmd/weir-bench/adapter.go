package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/weir-log/weir/bench/adapter"
)

type adapterCmds struct {
	Check  adapterCheckCmd  `cmd:"" help:"Check an adapter against what the benchmark measures it by: thirty checks, each told by name when it fails."`
	Checks adapterChecksCmd `cmd:"" help:"List the checks."`
}

type adapterCheckCmd struct {
	Only    []string `help:"Make only these checks." placeholder:"CHECK"`
	Command []string `arg:"" passthrough:"partial" help:"The adapter: -- and a command with its arguments." placeholder:"COMMAND"`
}

// Help is below the flags.
func (adapterCheckCmd) Help() string {
	return `An adapter is a program that speaks JSON lines on its standard input and output: docs/bench-adapter.md describes them, and bench/examples has two.

Examples:

  weir-bench adapter check -- python3 adapter.py
  weir-bench adapter check --only queue-kept -- node adapter.js

What stands after -- is the adapter's.`
}

func (c *adapterCheckCmd) Run(ctx context.Context) error {
	command, err := c.command(os.Stderr)
	if err != nil {
		return err
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

// command is the adapter's. A flag behind it belongs to the adapter, which may not be what was
// meant: without -- it is refused, with -- told.
func (c *adapterCheckCmd) command(told io.Writer) ([]string, error) {
	command, apart := c.Command, len(c.Command) > 0 && c.Command[0] == "--"
	if apart {
		command = command[1:]
	}
	if len(command) == 0 {
		return nil, errors.New("after -- the command of the adapter is missing: weir-bench adapter check -- python3 adapter.py")
	}
	if slices.ContainsFunc(command, func(arg string) bool { return arg == only || strings.HasPrefix(arg, only+"=") }) {
		says := fmt.Sprintf("%s stands after the command, so that the adapter gets it; weir-bench's own stands before: weir-bench adapter check %s CHECK -- %s …", only, only, command[0])
		if !apart {
			return nil, errors.New(says)
		}
		fmt.Fprintln(told, says)
	}
	return command, nil
}

// only is the flag of adapter check.
const only = "--only"

type adapterChecksCmd struct{}

func (adapterChecksCmd) Run() error {
	for _, c := range adapter.All() {
		fmt.Printf("%-18s %s\n", c.Name, c.Promises)
	}
	return nil
}
