// Command handler prints the events of a topic. It opens the log in the database itself: no server
// need run.
//
//	handler postgres://localhost/shop orders 2     ends after two events
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"

	"github.com/weir-log/weir"
)

func main() {
	slog.SetLogLoggerLevel(slog.LevelError) // who joins and leaves the group, and what is tried again, is of no interest here
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "handler:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("usage: handler STORE TOPIC EVENTS")
	}
	count, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	w, err := weir.Open(ctx, args[0], weir.Options{})
	if err != nil {
		return err
	}
	events := make(chan weir.Event)
	wanted, enough := context.WithCancel(ctx)
	defer enough()
	_, err = w.Consume(ctx, weir.Subscription{
		Group:  "printers",
		Topics: []string{args[1]},
		Handler: func(_ context.Context, e weir.Event) error {
			select {
			case events <- e:
				return nil // handled: the group's position moves on
			case <-wanted.Done():
				return wanted.Err() // not handled: it comes again, to who runs next
			}
		},
	})
	for ; err == nil && count > 0; count-- {
		select {
		case e := <-events:
			fmt.Printf("%s/%d@%d %s: %s\n", e.Topic, e.Partition, e.Offset, e.Key, e.Value)
		case <-ctx.Done():
			count = 0
		}
	}
	enough()
	return errors.Join(err, w.Close(context.WithoutCancel(ctx)))
}
