package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/dev/queueload"
)

// article is the queue of "Kafka is fast, I'll use Postgres", from its description: a row a
// message; a reader locks the oldest row that nobody has locked, deletes it, and inserts it into an
// archive, in a transaction. A batch is so many rows.
type article struct{ pool *pgxpool.Pool }

func onArticle(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	pool, err := connections(ctx, address, l.Writers+l.Workers)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `
		CREATE TABLE queue (id bigserial PRIMARY KEY, payload bytea NOT NULL, created_at timestamp DEFAULT now());
		CREATE TABLE queue_archive (id bigint, payload bytea NOT NULL, created_at timestamp, processed_at timestamp DEFAULT now())`)
	if err != nil {
		return r, err
	}
	return l.Run(ctx, article{pool})
}

func (a article) Enqueue(ctx context.Context, values [][]byte) error {
	_, err := a.pool.Exec(ctx, `INSERT INTO queue (payload) SELECT unnest($1::bytea[])`, values)
	return err
}

func (a article) Work(ctx context.Context, workers, batch int, handle func([]byte)) error {
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			for ctx.Err() == nil {
				found, err := a.take(ctx, batch, handle)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if !found {
					time.Sleep(time.Millisecond) // it polls
				}
			}
			return nil
		})
	}
	return all.Wait()
}

func (a article) take(ctx context.Context, batch int, handle func([]byte)) (found bool, err error) {
	var payloads [][]byte
	err = pgx.BeginFunc(ctx, a.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `SELECT id, payload, created_at FROM queue ORDER BY id FOR UPDATE SKIP LOCKED LIMIT $1`, batch)
		if err != nil {
			return err
		}
		var ids []int64
		var created []time.Time
		for rows.Next() {
			var id int64
			var payload []byte
			var at time.Time
			if err := rows.Scan(&id, &payload, &at); err != nil {
				return err
			}
			ids, payloads, created = append(ids, id), append(payloads, payload), append(created, at)
		}
		if err := rows.Err(); err != nil || len(ids) == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, `DELETE FROM queue WHERE id = ANY ($1)`, ids); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO queue_archive (id, payload, created_at) SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::timestamp[])`, ids, payloads, created)
		return err
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		return false, err
	}
	if err == nil {
		for _, p := range payloads {
			handle(p)
		}
	}
	return len(payloads) > 0, nil
}
