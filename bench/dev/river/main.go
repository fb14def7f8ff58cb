// Command river measures River's queue under the load of bench/queueload, and prints the result as
// JSON. It is a module of its own, since only the benchmark needs River.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/weir-log/weir/bench/dev/queueload"
)

func main() {
	var l queueload.Load
	address := flag.String("postgres", "", "URL of a database that only this program uses")
	flag.IntVar(&l.Writers, "writers", 10, "")
	flag.IntVar(&l.Workers, "workers", 15, "")
	flag.IntVar(&l.Batch, "batch", 1, "messages a call")
	flag.IntVar(&l.Size, "size", 1024, "bytes of a message")
	flag.IntVar(&l.Rate, "rate", 0, "messages a second; 0: as many as the workers can handle")
	flag.DurationVar(&l.WarmUp, "warm-up", 2*time.Second, "")
	flag.DurationVar(&l.Length, "length", 20*time.Second, "")
	flag.DurationVar(&l.Window, "window", 0, "")
	flag.Parse()
	r, err := measure(context.Background(), *address, l)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// job is a message. River keeps arguments as JSON.
type job struct {
	Value []byte `json:"value"`
}

func (job) Kind() string { return "bench" }

type worker struct {
	river.WorkerDefaults[job]
	handle func([]byte)
}

func (w *worker) Work(_ context.Context, j *river.Job[job]) error {
	w.handle(j.Args.Value)
	return nil
}

// onRiver is River with its defaults. A message is a job; a batch is one InsertMany, and River
// fetches as many as it has room for.
type onRiver struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
}

func measure(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return r, err
	}
	config.MaxConns = int32(l.Writers + l.Workers + 5)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return r, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return r, err
	}
	insert, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return r, err
	}
	return l.Run(ctx, onRiver{pool, insert})
}

func (o onRiver) Enqueue(ctx context.Context, values [][]byte) error {
	if len(values) == 1 {
		_, err := o.insert.Insert(ctx, job{values[0]}, nil)
		return err
	}
	many := make([]river.InsertManyParams, len(values))
	for i, v := range values {
		many[i].Args = job{v}
	}
	_, err := o.insert.InsertManyFast(ctx, many)
	return err
}

func (o onRiver) Work(ctx context.Context, workers, batch int, handle func([]byte)) error {
	w := river.NewWorkers()
	river.AddWorker(w, &worker{handle: handle})
	client, err := river.NewClient(riverpgxv5.New(o.pool), &river.Config{
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: workers * batch}},
		Workers: w,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return client.Stop(context.WithoutCancel(ctx))
}
