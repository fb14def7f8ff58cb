package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/internal/proctest"
)

// Options say what Serve serves.
type Options struct {
	System  string
	Mode    system.Mode
	Place   system.Place
	Address string // of the API
	Project bool   // with a projection in memory
}

// PostgresVariable has Place.Postgres, with its password, for weir-bench api: anybody can read the
// arguments of a process.
const PostgresVariable = "WEIR_BENCH_POSTGRES"

// args are the options as Serve's caller, weir-bench api, has them.
func (o Options) args() []string {
	return []string{"api", "--system", o.System, "--mode", string(o.Mode), "--dir", o.Place.Dir, fmt.Sprintf("--keep=%t", o.Place.Keep), "--http", o.Address, fmt.Sprintf("--project=%t", o.Project)}
}

// segment is the system in a URL.
func (o Options) segment() string {
	if strings.HasPrefix(o.System, system.ExecPrefix) {
		return "adapter"
	}
	return o.System
}

// settings are those that are known before the system runs.
func (o Options) settings() system.Settings {
	s, err := system.Find(o.System)
	if err != nil {
		return nil
	}
	return s.Modes[o.Mode]
}

// stopWait bounds how long requests have when the API stops.
const stopWait = 10 * time.Second

// Serve starts a system, and answers commands for it until ctx ends.
func Serve(ctx context.Context, o Options) (err error) {
	s, err := system.Find(o.System)
	if err != nil {
		return err
	}
	server, err := s.Start(ctx, o.Place, o.Mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	streams, is := system.As[system.Streams](server.Target())
	if !is {
		return fmt.Errorf("%s has no streams", o.System)
	}
	if err := streams.CreateStreams(ctx); err != nil {
		return err
	}
	a := &API{name: o.segment(), streams: streams, about: aboutOf(s, o.Mode, server)}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	var all errgroup.Group
	srv := &http.Server{Handler: a.Handler(), ReadHeaderTimeout: time.Minute}
	all.Go(func() error {
		defer stop()
		if err := srv.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if o.Project {
		all.Go(func() error { defer stop(); return a.Project(ctx) })
	}
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWait)
	defer cancel()
	return errors.Join(srv.Shutdown(ending), all.Wait())
}

// Start starts this program again, as the API of a system, in a process of its own.
func Start(ctx context.Context, o Options) (system.Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	port, err := proctest.FreePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	known := o.settings()
	o.Address, o.System = address, system.From(cwd, o.System)
	if err := os.Setenv(PostgresVariable, o.Place.Postgres); err != nil { // which the process inherits
		return nil, err
	}
	p, err := system.StartProcess(ctx, o.Place.Dir, address, program, o.args()...)
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, o.segment(), address, p)
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	maps.Copy(c.about.Settings, known) // the command of an adapter as it was given
	if o.Project {
		return following{c}, nil
	}
	return c, nil
}
