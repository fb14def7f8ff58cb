package run_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/weir-log/weir/bench/api"
	"github.com/weir-log/weir/bench/system"
)

// TestMain is the command api in a process that a measurement starts, as cmd/weir-bench has it.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "api" {
		os.Exit(m.Run())
	}
	var o api.Options
	f := flag.NewFlagSet("api", flag.ExitOnError)
	f.StringVar(&o.System, "system", "", "")
	f.StringVar((*string)(&o.Mode), "mode", string(system.Durable), "")
	f.StringVar(&o.Dir, "dir", "", "")
	f.StringVar(&o.Address, "http", "", "")
	f.BoolVar(&o.Project, "project", false, "")
	_ = f.Parse(os.Args[2:]) // it exits
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := api.Serve(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
