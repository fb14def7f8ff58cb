package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/fetch"
)

// pgqs are PgQ with the defaults of its queues and of its daemon pgqd, and PgQ that ticks more
// often: an event is read after the next tick, so that the ticks decide its latency.
func pgqs() []System {
	var all []System
	for _, x := range []struct {
		name, about, ticks string
		every              time.Duration
		lag                string // ticker_max_lag of a queue; "": its default
	}{
		{"pgq", "with its defaults", "ticker_period 1 s, ticker_max_lag 3 s, ticker_max_count 500 (the defaults)", time.Second, ""},
		{"pgq-50ms", "with a tick each 50 ms", "ticker_period and ticker_max_lag 50 ms", 50 * time.Millisecond, "50 ms"},
	} {
		settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "ticks": x.ticks,
			"client": "pgx: insert_event, next_batch, get_batch_events, finish_batch; a look each 10 ms; a queue for each partition; as a work queue one consumer, which finishes whole batches; PgQ's functions in PL/pgSQL; the payload is base64 in a JSON object"}
		all = append(all, System{
			Name: x.name, About: "PgQ " + mustPeer("pgq").Version + " on PostgreSQL, " + x.about, Needs: "PostgreSQL", Fetch: "pgq", Ordered: true,
			Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
			Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
				return startPgQ(ctx, place, x.every, x.lag)
			},
		})
	}
	return all
}

// startPgQ installs PgQ's SQL without its functions in C, which need the server's own build, and
// does what pgqd does.
func startPgQ(ctx context.Context, place Place, every time.Duration, lag string) (Server, error) {
	dir, err := fetch.Dir("pgq")
	if err != nil {
		return nil, err
	}
	ticking, stop := context.WithCancel(context.Background())
	var daemon sync.WaitGroup
	server, err := startOnPostgres(ctx, place, "", func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
		text, err := os.ReadFile(filepath.Join(dir, "usr", "share", "postgresql", "15", "contrib", "pgq_pl_only.sql"))
		if err != nil {
			return nil, err
		}
		if _, err := pool.Exec(ctx, string(text)); err != nil {
			return nil, fmt.Errorf("PgQ's SQL: %w", err)
		}
		q := &pgq{pool: pool, lag: lag}
		daemon.Go(func() { q.tick(ticking, every) })
		return q, nil
	})
	if err != nil {
		stop()
		daemon.Wait()
		return nil, err
	}
	return &pgqServer{server.(*onPostgres), func() { stop(); daemon.Wait() }}, nil
}

type pgqServer struct {
	*onPostgres
	stop func()
}

func (s *pgqServer) Close() error { s.stop(); return s.onPostgres.Close() }

type pgq struct {
	pool       *pgxpool.Pool
	lag        string
	partitions int
}

// Periods of pgqd (pgqd(1), CONFIGURATION), beside that of its ticker.
const (
	retryPeriod = 30 * time.Second
	maintPeriod = 2 * time.Minute
)

// tick does what pgqd does, with the statements that pgqd has (src/ticker.c, retry.c, maint.c): it
// ticks, puts back what is to be tried again, and rotates the tables. A statement that fails, as
// when the database is away, is made again in its next period.
func (q *pgq) tick(ctx context.Context, every time.Duration) {
	retried, maintained := time.Now(), time.Now()
	for ctx.Err() == nil {
		_, _ = q.pool.Exec(ctx, `SELECT pgq.ticker()`)
		if time.Since(retried) > retryPeriod {
			retried = time.Now()
			_, _ = q.pool.Exec(ctx, `SELECT pgq.maint_retry_events()`)
		}
		if time.Since(maintained) > maintPeriod {
			maintained = time.Now()
			_ = q.maintain(ctx)
		}
		pause(ctx, every)
	}
}

// maintain does what maint_operations names: functions to be called, and tables to be vacuumed.
func (q *pgq) maintain(ctx context.Context) error {
	rows, err := q.pool.Query(ctx, `SELECT func_name, func_arg FROM pgq.maint_operations()`)
	if err != nil {
		return err
	}
	type operation struct {
		Name string
		Arg  *string
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[operation])
	for _, o := range all {
		var failed error
		switch {
		case o.Name == "vacuum" || o.Name == "vacuum analyze":
			_, failed = q.pool.Exec(ctx, o.Name+` `+*o.Arg)
		case o.Arg == nil:
			_, failed = q.pool.Exec(ctx, `SELECT `+o.Name+`()`)
		default:
			_, failed = q.pool.Exec(ctx, `SELECT `+o.Name+`($1)`, *o.Arg)
		}
		err = errors.Join(err, failed)
	}
	return err
}

// CreateQueue creates a queue and registers the consumer of its workers.
func (q *pgq) CreateQueue(ctx context.Context, queue string) error {
	if err := q.createQueue(ctx, queue); err != nil {
		return err
	}
	return q.register(ctx, queue, worker)
}

func (q *pgq) createQueue(ctx context.Context, queue string) error {
	if _, err := q.pool.Exec(ctx, `SELECT pgq.create_queue($1)`, queue); err != nil || q.lag == "" {
		return err
	}
	_, err := q.pool.Exec(ctx, `SELECT pgq.set_queue_config($1, 'ticker_max_lag', $2)`, queue, q.lag)
	return err
}

// register makes a consumer begin at the queue's first tick. One that is there stays where it is:
// it gets a NULL.
func (q *pgq) register(ctx context.Context, queue, consumer string) error {
	_, err := q.pool.Exec(ctx, `SELECT pgq.register_consumer_at($1, $2, min(tick_id)) FROM pgq.tick JOIN pgq.queue ON tick_queue = queue_id
		WHERE queue_name = $1 AND NOT EXISTS (SELECT FROM pgq.get_consumer_info($1, $2))`, queue, consumer)
	return err
}

func (q *pgq) Create(ctx context.Context, topic string, partitions int) error {
	q.partitions = partitions
	for i := range partitions {
		if err := q.createQueue(ctx, partitionName(topic, i)); err != nil {
			return err
		}
	}
	return nil
}

func partitionName(topic string, partition int) string { return fmt.Sprintf("%s_%d", topic, partition) }

func (q *pgq) Publish(ctx context.Context, topic string, events []Event) error {
	queues, values := make([]string, len(events)), make([][]byte, len(events))
	for i, e := range events {
		queues[i], values[i] = partitionName(topic, partitionOf(e.Key, q.partitions)), e.Value
	}
	return q.insert(ctx, queues, values)
}

func (q *pgq) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	queues := make([]string, len(values))
	for i := range queues {
		queues[i] = queue
	}
	return q.insert(ctx, queues, values)
}

// insert inserts events into queues in one statement, in their order.
func (q *pgq) insert(ctx context.Context, queues []string, values [][]byte) error {
	data := make([]string, len(values))
	for i, v := range values {
		var err error
		if data[i], err = asJSON(v); err != nil {
			return err
		}
	}
	_, err := q.pool.Exec(ctx, `SELECT pgq.insert_event(e.queue, 'measured', e.data) FROM unnest($1::text[], $2::text[]) AS e (queue, data)`, queues, data)
	return outcome(err)
}

// Consume has a consumer of each queue for a group; a member has its queues for good.
func (q *pgq) Consume(ctx context.Context, topic, group string, members int, deliver func(value []byte)) error {
	var all errgroup.Group
	for i := range q.partitions {
		if err := q.register(ctx, partitionName(topic, i), group); err != nil {
			return err
		}
	}
	for m := range min(members, q.partitions) {
		all.Go(func() error {
			var queues []string
			for i := m; i < q.partitions; i += members {
				queues = append(queues, partitionName(topic, i))
			}
			return q.follow(ctx, queues, group, deliver, func([]byte) {})
		})
	}
	return all.Wait()
}

const (
	worker    = "worker"
	lookPause = 10 * time.Millisecond // of a consumer that has no batch
)

// Work is one consumer, however many workers there are: a batch belongs to a consumer, and is
// finished as a whole.
func (q *pgq) Work(ctx context.Context, queue string, _, _ int, got, acked func(value []byte)) error {
	return q.follow(ctx, []string{queue}, worker, got, acked)
}

// follow takes batches until ctx ends, as PgQ's own consumers do (python-pgq, baseconsumer.py).
func (q *pgq) follow(ctx context.Context, queues []string, consumer string, got, acked func([]byte)) error {
	for ctx.Err() == nil {
		found := false
		for _, queue := range queues {
			some, err := q.take(ctx, queue, consumer, got, acked)
			if err != nil && ctx.Err() == nil {
				return err
			}
			found = found || some
		}
		if !found {
			pause(ctx, lookPause)
		}
	}
	return nil
}

// take takes one batch, if there is one.
func (q *pgq) take(ctx context.Context, queue, consumer string, got, acked func([]byte)) (found bool, err error) {
	var batch *int64
	if err := q.pool.QueryRow(ctx, `SELECT pgq.next_batch($1, $2)`, queue, consumer).Scan(&batch); err != nil || batch == nil {
		return false, err
	}
	ctx = context.WithoutCancel(ctx) // a batch that was taken is finished
	rows, err := q.pool.Query(ctx, `SELECT ev_data FROM pgq.get_batch_events($1)`, *batch)
	if err != nil {
		return false, err
	}
	values, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) {
		var data string
		if err := row.Scan(&data); err != nil {
			return nil, err
		}
		return fromJSON([]byte(data))
	})
	if err != nil {
		return false, err
	}
	for _, v := range values {
		got(v)
	}
	if _, err := q.pool.Exec(ctx, `SELECT pgq.finish_batch($1)`, *batch); err != nil {
		return false, err
	}
	for _, v := range values {
		acked(v)
	}
	return true, nil
}

func (q *pgq) Left(ctx context.Context, queue string) (n int64, err error) {
	err = q.pool.QueryRow(ctx, `SELECT pending_events FROM pgq.get_consumer_info($1, $2)`, queue, worker).Scan(&n)
	return n, err
}
