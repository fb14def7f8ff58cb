package system

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// rivers are River by its own client. A message is a job; a call with several is one InsertMany,
// and River fetches as many as its workers have room for. By default a client fetches at most ten
// times a second, which limits it to ten times its workers a second; so it is also measured with
// the shortest pause that it can be set to.
func rivers() []System {
	var all []System
	for _, x := range []struct {
		name, about, settings string
		every                 time.Duration // FetchCooldown and FetchPollInterval; 0: River's defaults
	}{
		{"river", "with its defaults", "PostgreSQL's and River's defaults: FetchCooldown 100 ms, FetchPollInterval 1 s", 0},
		{"river-1ms", "with a fetch each millisecond", "PostgreSQL's defaults; FetchCooldown and FetchPollInterval 1 ms", time.Millisecond},
	} {
		settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": x.settings, "client": "River's own; acknowledged is when its completer has stored it"}
		all = append(all, System{
			Name: x.name, About: "River " + built("github.com/riverqueue/river") + " on PostgreSQL, by its own client, " + x.about, Needs: "PostgreSQL",
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
				return startOnPostgres(ctx, place, "", func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
					migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
					if err != nil {
						return nil, err
					}
					if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
						return nil, err
					}
					insert, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: onlyErrors()})
					return &onRiver{pool: pool, insert: insert, every: x.every}, err
				})
			},
		})
	}
	return all
}

func onlyErrors() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
}

type riverJob struct {
	Value []byte `json:"value"`
}

func (riverJob) Kind() string { return "measured" }

type riverWorker struct {
	river.WorkerDefaults[riverJob]
	handle func(id int64, value []byte)
}

func (w *riverWorker) Work(_ context.Context, j *river.Job[riverJob]) error {
	w.handle(j.ID, j.Args.Value)
	return nil
}

type onRiver struct {
	pool   *pgxpool.Pool
	insert *river.Client[pgx.Tx]
	every  time.Duration
}

func (o *onRiver) CreateQueue(context.Context, string) error { return nil }

func (o *onRiver) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	if len(values) == 1 {
		_, err := o.insert.Insert(ctx, riverJob{values[0]}, &river.InsertOpts{Queue: queue})
		return outcome(err)
	}
	many := make([]river.InsertManyParams, len(values))
	for i, v := range values {
		many[i] = river.InsertManyParams{Args: riverJob{v}, InsertOpts: &river.InsertOpts{Queue: queue}}
	}
	_, err := o.insert.InsertManyFast(ctx, many)
	return outcome(err)
}

// eventsMost is how many of River's events may wait: it drops those beyond.
const eventsMost = 1 << 20

// Work starts a client with as many workers as there are, times the batch.
func (o *onRiver) Work(ctx context.Context, queue string, workers, batch int, got, acked func(value []byte)) error {
	var mu sync.Mutex // guards taken
	taken := make(map[int64][]byte)
	all := river.NewWorkers()
	river.AddWorker(all, &riverWorker{handle: func(id int64, value []byte) {
		mu.Lock()
		taken[id] = value
		mu.Unlock()
		got(value)
	}})
	client, err := river.NewClient(riverpgxv5.New(o.pool), &river.Config{
		Logger: onlyErrors(), FetchCooldown: o.every, FetchPollInterval: o.every, Queues: map[string]river.QueueConfig{queue: {MaxWorkers: workers * batch}}, Workers: all,
	})
	if err != nil {
		return err
	}
	completed, cancel := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: eventsMost, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for e := range completed {
			mu.Lock()
			value := taken[e.Job.ID]
			delete(taken, e.Job.ID)
			mu.Unlock()
			acked(value)
		}
	}()
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	err = client.Stop(context.WithoutCancel(ctx))
	cancel()
	<-heard
	return err
}

func (o *onRiver) Left(ctx context.Context, queue string) (n int64, err error) {
	err = o.pool.QueryRow(ctx, `SELECT count(*) FROM river_job WHERE queue = $1 AND state <> 'completed'`, queue).Scan(&n)
	return n, err
}

// built is the version of a module that this program was built with.
func built(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == module {
				return strings.TrimPrefix(m.Version, "v")
			}
		}
	}
	return "of an unknown version"
}
