package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/bench/dev/queueload"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// queueRow is a queue that is measured, on a store of its own.
type queueRow struct {
	name, store string
	measure     func(ctx context.Context, address string, l queueload.Load) (queueload.Result, error)
}

// runQueue puts the load of the article "Kafka is fast, I'll use Postgres" on weir's queue and on
// its peers: ten writers, fifteen readers, messages of 1 KiB. First as many as the workers take,
// then half as many.
func runQueue(ctx context.Context, b *bench) error {
	rows := []queueRow{
		{"the article's", "postgres", onArticle},
		{"River", "postgres", b.onRiver},
	}
	if slices.Contains(b.stores, "postgres") {
		rows = append(rows, queueRow{"weir, SQL alone", "postgres", b.onSQLQueue})
	}
	for _, s := range b.stores {
		rows = append(rows, queueRow{"weir, claim and ack", s, onClaims}, queueRow{"weir, Work", s, onWork})
	}
	for _, batch := range []int{1, 100} {
		fmt.Printf("%d a call:\n\n| queue | store | messages/s | of the article's | at | end to end p50 | p99 | max | handled once |\n", batch)
		fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
		most := make(map[string][]float64)
		for range b.runs {
			for _, row := range rows {
				l := queueload.Load{Writers: 10, Workers: 15, Batch: batch, Size: 1024, WarmUp: 2 * time.Second, Length: b.load.length}
				all, err := b.onQueue(ctx, row, l)
				if err != nil {
					return fmt.Errorf("%s on %s: %w", row.name, row.store, err)
				}
				l.Rate = int(all.PerSecond / 2)
				half, err := b.onQueue(ctx, row, l)
				if err != nil {
					return fmt.Errorf("%s on %s at half the rate: %w", row.name, row.store, err)
				}
				key := row.name + " on " + row.store
				most[key] = append(most[key], all.PerSecond)
				article := median(most["the article's on postgres"])
				fmt.Printf("| %s | %s | %.0f | %.1f | %.0f/s | %v | %v | %v | %s |\n", row.name, row.store, all.PerSecond, all.PerSecond/article,
					half.PerSecond, half.P50.Round(100*time.Microsecond), half.P99.Round(100*time.Microsecond), half.Max.Round(100*time.Microsecond), handledOnce(all, half))
			}
		}
		fmt.Println("\nMedians:")
		for _, row := range rows {
			key := row.name + " on " + row.store
			fmt.Printf("- %s: %.0f messages/s, %.1f of the article's\n", key, median(most[key]), median(most[key])/median(most["the article's on postgres"]))
		}
		fmt.Println()
	}
	return nil
}

func handledOnce(all ...queueload.Result) string {
	handled, repeated := int64(0), int64(0)
	for _, r := range all {
		handled, repeated = handled+r.Handled, repeated+r.Repeated
	}
	if repeated > 0 {
		return fmt.Sprintf("NO: %d again", repeated)
	}
	return fmt.Sprintf("yes, %d", handled)
}

// onQueue measures on a fresh store.
func (b *bench) onQueue(ctx context.Context, row queueRow, l queueload.Load) (queueload.Result, error) {
	address, closeStore, err := b.store(row.store)
	if err != nil {
		return queueload.Result{}, err
	}
	defer closeStore()
	return row.measure(ctx, address, l)
}

func warnings() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// claims is weir's queue by single calls: enqueue, claim, ack.
type claims struct{ q *queue.Queue }

func onClaims(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	s, err := store.Open(ctx, address, warnings())
	if err != nil {
		return r, err
	}
	defer s.Close()
	log, err := eventlog.Open(ctx, s, eventlog.Config{Logger: warnings()})
	if err != nil {
		return r, err
	}
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{Logger: warnings()})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var all errgroup.Group
	all.Go(func() error { return log.Run(running) })
	all.Go(func() error { return qs.Run(running) })
	defer func() { stop(); err = errors.Join(err, all.Wait()) }()
	if _, err := qs.Create(ctx, queue.Spec{Name: "bench", Partitions: 4}); err != nil {
		return r, err
	}
	q, err := qs.Open(ctx, "bench")
	if err != nil {
		return r, err
	}
	return l.Run(ctx, claims{q})
}

func (c claims) Enqueue(ctx context.Context, values [][]byte) error {
	messages := make([]queue.NewMessage, len(values))
	for i, v := range values {
		messages[i].Value = v
	}
	_, err := c.q.Enqueue(ctx, messages...)
	return err
}

// Work lets each worker claim its next messages while the ack of the ones before is on its way.
func (c claims) Work(ctx context.Context, workers, batch int, handle func([]byte)) error {
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			var acks errgroup.Group
			for ctx.Err() == nil {
				got, err := c.q.Claim(ctx, queue.Claim{Max: batch, Wait: time.Second})
				if err != nil && ctx.Err() == nil {
					return errors.Join(err, acks.Wait())
				}
				receipts := make([]string, len(got))
				for i, m := range got {
					handle(m.Value)
					receipts[i] = m.Receipt
				}
				if err := acks.Wait(); err != nil {
					return err
				}
				acks.Go(func() error {
					errs, err := c.q.Ack(context.WithoutCancel(ctx), receipts...)
					return errors.Join(append(errs, err)...)
				})
			}
			return acks.Wait()
		})
	}
	return all.Wait()
}

// library is weir's queue by its Go library.
type library struct{ log *weir.Log }

func onWork(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	log, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close(context.WithoutCancel(ctx))) }()
	if err := log.EnsureQueue(ctx, weir.Queue{Name: "bench", Partitions: 4}); err != nil {
		return r, err
	}
	return l.Run(ctx, library{log})
}

func (l library) Enqueue(ctx context.Context, values [][]byte) error {
	messages := make([]weir.NewMessage, len(values))
	for i, v := range values {
		messages[i].Value = v
	}
	_, err := l.log.Enqueue(ctx, "bench", messages...)
	return err
}

func (l library) Work(ctx context.Context, workers, batch int, handle func([]byte)) error {
	w, err := l.log.Work(ctx, weir.WorkOptions{Queue: "bench", Concurrency: workers * batch, Handler: func(_ context.Context, j weir.Job) error {
		handle(j.Value)
		return nil
	}})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return w.Close(context.WithoutCancel(ctx))
}

// onRiver measures River, which is in a module of its own: only this needs it.
func (b *bench) onRiver(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	cmd := exec.CommandContext(ctx, "go", "run", ".", "-postgres", address, "-writers", strconv.Itoa(l.Writers), "-workers", strconv.Itoa(l.Workers),
		"-batch", strconv.Itoa(l.Batch), "-size", strconv.Itoa(l.Size), "-rate", strconv.Itoa(l.Rate), "-warm-up", l.WarmUp.String(), "-length", l.Length.String(), "-window", l.Window.String())
	cmd.Dir = "dev/river"
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%w: %s", err, said.String())
	}
	return r, json.Unmarshal(out, &r)
}
