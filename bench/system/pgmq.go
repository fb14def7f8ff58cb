package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/fetch"
)

// pgmq is pgmq's own SQL, as its crate installs it where the extension is not at hand.
func pgmq() System {
	settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "client": "pgx: send_batch, read with a lease of 30 s, delete; a poll each ms; the payload is base64 in a JSON object"}
	return System{
		Name: "pgmq", About: "pgmq, the SQL of crate " + mustPeer("pgmq").Version + ", on PostgreSQL", Needs: "PostgreSQL", Fetch: "pgmq",
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			dir, err := fetch.Dir("pgmq")
			if err != nil {
				return nil, err
			}
			return startOnPostgres(ctx, place, "", func(ctx context.Context, pool *pgxpool.Pool) (any, error) {
				text, err := os.ReadFile(filepath.Join(dir, "src", "install", "embedded", "sql", "pgmq.sql"))
				if err != nil {
					return nil, err
				}
				if _, err := pool.Exec(ctx, string(text)); err != nil {
					return nil, fmt.Errorf("pgmq's SQL: %w", err)
				}
				return &pgmqQueue{pool}, nil
			})
		},
	}
}

type pgmqQueue struct{ pool *pgxpool.Pool }

func (q *pgmqQueue) CreateQueue(ctx context.Context, queue string) error {
	_, err := q.pool.Exec(ctx, `SELECT pgmq.create($1)`, queue)
	return err
}

func (q *pgmqQueue) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	all := make([]string, len(values))
	for i, v := range values {
		var err error
		if all[i], err = asJSON(v); err != nil {
			return err
		}
	}
	_, err := q.pool.Exec(ctx, `SELECT pgmq.send_batch($1, $2::text[]::jsonb[])`, queue, all)
	return outcome(err)
}

// leaseSeconds is how long a worker has a message for itself.
const leaseSeconds = 30

func (q *pgmqQueue) Work(ctx context.Context, queue string, workers, batch int, got, acked func(value []byte)) error {
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			for ctx.Err() == nil {
				n, err := q.take(ctx, queue, batch, got, acked)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if n == 0 {
					pause(ctx, pollEvery)
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (q *pgmqQueue) take(ctx context.Context, queue string, batch int, got, acked func(value []byte)) (int, error) {
	rows, err := q.pool.Query(ctx, `SELECT msg_id, message FROM pgmq.read($1, $2, $3)`, queue, leaseSeconds, batch)
	if err != nil {
		return 0, err
	}
	var ids []int64
	var values [][]byte
	var id int64
	var text string
	if _, err := pgx.ForEachRow(rows, []any{&id, &text}, func() error {
		value, err := fromJSON([]byte(text))
		ids, values = append(ids, id), append(values, value)
		return err
	}); err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, v := range values {
		got(v)
	}
	if _, err := q.pool.Exec(context.WithoutCancel(ctx), `SELECT pgmq.delete($1, $2::bigint[])`, queue, ids); err != nil {
		return 0, err
	}
	for _, v := range values {
		acked(v)
	}
	return len(ids), nil
}

func (q *pgmqQueue) Left(ctx context.Context, queue string) (n int64, err error) {
	err = q.pool.QueryRow(ctx, `SELECT queue_length FROM pgmq.metrics($1)`, queue).Scan(&n)
	return n, err
}
