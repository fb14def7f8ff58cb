package system

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"
)

// pgNotify is a queue as the durable e-mail service on LISTEN and NOTIFY has it, from its
// description: the transaction that inserts notifies of the ids; who listens claims those ids in
// one statement, then handles them side by side, each marked by a statement of its own. The
// statements are written for this benchmark.
func pgNotify() System {
	settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "notified": "350 ids at a time; what was not heard of is found each second"}
	return System{
		Name: "pg-notify", About: "a table in PostgreSQL with LISTEN and NOTIFY, as a service that sends e-mails has it", Needs: "PostgreSQL",
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			return startOnPostgres(ctx, place, "", func(_ context.Context, pool *pgxpool.Pool) (any, error) { return &notifyQueue{pool}, nil })
		},
	}
}

type notifyQueue struct{ pool *pgxpool.Pool }

func (q *notifyQueue) CreateQueue(ctx context.Context, queue string) error {
	name := pgx.Identifier{queue}.Sanitize()
	_, err := q.pool.Exec(ctx, `CREATE TABLE `+name+` (id bigserial PRIMARY KEY, payload bytea NOT NULL, status text NOT NULL DEFAULT 'scheduled',
		created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz);
		CREATE INDEX ON `+name+` (id) WHERE status = 'scheduled'`)
	return err
}

const (
	insertMost = 500 // rows of a statement
	notifyMost = 350 // ids of a notification: it has at most 8,000 bytes
)

// Enqueue inserts and notifies in one transaction.
func (q *notifyQueue) Enqueue(ctx context.Context, queue string, values [][]byte) error {
	return outcome(pgx.BeginFunc(ctx, q.pool, func(tx pgx.Tx) error {
		var ids []int64
		for some := range slices.Chunk(values, insertMost) {
			rows, err := tx.Query(ctx, `INSERT INTO `+pgx.Identifier{queue}.Sanitize()+` (payload) SELECT unnest($1::bytea[]) RETURNING id`, some)
			if err != nil {
				return err
			}
			inserted, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			ids = append(ids, inserted...)
		}
		for some := range slices.Chunk(ids, notifyMost) {
			told, err := json.Marshal(some)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `SELECT pg_notify($1, $2)`, queue, string(told)); err != nil {
				return err
			}
		}
		return nil
	}))
}

// lookEvery is how long a listener that heard of nothing waits until it looks by itself.
const lookEvery = time.Second

func (q *notifyQueue) Work(ctx context.Context, queue string, workers, _ int, got, acked func([]byte)) error {
	pooled, err := q.pool.Acquire(ctx)
	if err != nil {
		return errUnless(ctx, err)
	}
	conn := pooled.Hijack() // a wait that is cancelled ends it
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, `LISTEN `+pgx.Identifier{queue}.Sanitize()); err != nil {
		return errUnless(ctx, err)
	}
	for ctx.Err() == nil {
		waiting, cancel := context.WithTimeout(ctx, lookEvery)
		heard, err := conn.WaitForNotification(waiting)
		late := waiting.Err() != nil
		cancel()
		var ids []int64 // nil: whatever there is
		switch {
		case err == nil:
			if err := json.Unmarshal([]byte(heard.Payload), &ids); err != nil {
				return err
			}
		case !late:
			return errUnless(ctx, err)
		}
		if err := q.handle(ctx, queue, ids, workers, got, acked); err != nil {
			return errUnless(ctx, err)
		}
	}
	return nil
}

// handle claims messages in one statement, and handles them side by side.
func (q *notifyQueue) handle(ctx context.Context, queue string, ids []int64, workers int, got, acked func([]byte)) error {
	name := pgx.Identifier{queue}.Sanitize()
	ctx = context.WithoutCancel(ctx) // what is claimed is handled
	rows, err := q.pool.Query(ctx, `WITH mine AS (SELECT id FROM `+name+` WHERE ($1::bigint[] IS NULL OR id = ANY ($1)) AND status = 'scheduled' LIMIT $2 FOR UPDATE SKIP LOCKED)
		UPDATE `+name+` m SET status = 'claimed', updated_at = now() FROM mine WHERE m.id = mine.id RETURNING m.id, m.payload`, ids, notifyMost)
	if err != nil {
		return err
	}
	type message struct {
		ID      int64
		Payload []byte
	}
	claimed, err := pgx.CollectRows(rows, pgx.RowToStructByPos[message])
	if err != nil {
		return err
	}
	var sending errgroup.Group
	sending.SetLimit(workers)
	for _, m := range claimed {
		sending.Go(func() error {
			got(m.Payload)
			if _, err := q.pool.Exec(ctx, `UPDATE `+name+` SET status = 'sent', updated_at = now() WHERE id = $1 AND status = 'claimed'`, m.ID); err != nil {
				return err
			}
			acked(m.Payload)
			return nil
		})
	}
	return sending.Wait()
}

func (q *notifyQueue) Left(ctx context.Context, queue string) (n int64, err error) {
	err = q.pool.QueryRow(ctx, `SELECT count(*) FROM `+pgx.Identifier{queue}.Sanitize()+` WHERE status <> 'sent'`).Scan(&n)
	return n, err
}
