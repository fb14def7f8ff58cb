// Command currency keeps the prices of currency pairs as events, and shows what a projection makes
// of them: the workload of a published comparison of databases for event sourcing (Malyi and
// Serdyuk, 2024).
//
//	go run ./examples/currency --store sqlite:currency.db
//	go run ./examples/currency load --rows 10000 --clients 8
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weir-log/weir"
)

// category is the topic of the streams. oneStream is the stream that has all events where --one is
// given; else each pair has its own.
const (
	category  = "currency"
	oneStream = "all"
)

// closeWithin is how long requests, the projection and the log may take to end.
const closeWithin = 10 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	var err error
	if len(os.Args) > 1 && os.Args[1] == "load" {
		err = loadCommand(ctx, os.Args[2:])
	} else {
		err = serveCommand(ctx, os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "currency:", err)
		os.Exit(1)
	}
}

func serveCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("currency", flag.ContinueOnError)
	store := flags.String("store", "", "where to store the events: sqlite:PATH, postgres://HOST/DATABASE or memory:")
	listen := flags.String("listen", "127.0.0.1:5093", "address for HTTP")
	one := flags.Bool("one", false, "append all events to one stream, instead of one stream per pair")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *store == "" || flags.NArg() > 0 {
		return errors.New("usage: currency --store STORE [--listen HOST:PORT] [--one], or currency load; see currency --help")
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	return serve(ctx, listener, *store, *one)
}

func loadCommand(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("currency load", flag.ContinueOnError)
	var l load
	flags.StringVar(&l.url, "url", "http://127.0.0.1:5093", "address of currency")
	flags.IntVar(&l.rows, "rows", 10_000, "how many rows to send")
	flags.IntVar(&l.clients, "clients", 8, "how many clients send at the same time; each sends a row when its last one is answered")
	flags.Uint64Var(&l.seed, "seed", 1, "seed of the random rows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if l.rows < 1 || l.clients < 1 || flags.NArg() > 0 {
		return errors.New("usage: currency load [--url URL] [--rows N] [--clients N] [--seed N], each at least 1")
	}
	began := time.Now()
	if err := l.send(ctx); err != nil {
		return err
	}
	took := time.Since(began)
	fmt.Printf("%d rows in %v: %.0f a second\n", l.rows, took.Round(time.Millisecond), float64(l.rows)/took.Seconds())
	return nil
}

// serve takes prices until ctx ends.
func serve(ctx context.Context, listener net.Listener, store string, one bool) error {
	defer listener.Close()
	log, err := weir.Open(ctx, store, weir.Options{})
	if err != nil {
		return err
	}
	s := &service{log: log, one: one, rates: newRates()}
	s.streams, err = log.EnsureCategory(ctx, weir.CategorySpec{Name: category})
	server := &http.Server{Handler: s.routes(), ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	if err == nil {
		err = s.project(ctx)
	}
	if err == nil {
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		slog.Info("taking prices", "at", listener.Addr().String())
		select {
		case <-ctx.Done():
		case err = <-served:
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	return errors.Join(err, server.Shutdown(last), s.forgetProjection(last), log.Close(last))
}
