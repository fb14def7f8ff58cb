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
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
)

// TestMain is the commands api and cell in processes that a measurement starts, as cmd/weir-bench
// has them.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "cell":
		if err := run.ServeCell(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) < 2 || os.Args[1] != "api":
		os.Exit(m.Run())
	}
	var o api.Options
	f := flag.NewFlagSet("api", flag.ExitOnError)
	f.StringVar(&o.System, "system", "", "")
	f.StringVar((*string)(&o.Mode), "mode", string(system.Durable), "")
	f.StringVar(&o.Place.Dir, "dir", "", "")
	f.BoolVar(&o.Place.Keep, "keep", false, "")
	o.Place.Postgres = os.Getenv(api.PostgresVariable)
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
