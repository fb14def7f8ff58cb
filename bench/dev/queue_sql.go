package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/bench/dev/queueload"
)

// sqlQueue is weir's queue by SQL alone, with a weir process beside it: each writer and each worker
// is a session.
type sqlQueue struct{ pool *pgxpool.Pool }

func (b *bench) onSQLQueue(ctx context.Context, address string, l queueload.Load) (r queueload.Result, err error) {
	w := &broker{store: address, closeStore: func() {}, kafka: freePort(), http: freePort(), log: filepath.Join(b.dir, "weir.log")}
	if err := w.run(ctx, b.weir); err != nil {
		return r, err
	}
	defer w.close()
	if err := w.createQueue(ctx, `{"name": "bench", "partitions": 4}`); err != nil {
		return r, err
	}
	pool, err := connections(ctx, address, l.Writers+l.Workers)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	r, err = l.Run(ctx, sqlQueue{pool})
	if err != nil {
		said, _ := os.ReadFile(w.log)
		err = fmt.Errorf("%w; weir said: %s", err, said)
	}
	return r, err
}

func (q sqlQueue) Enqueue(ctx context.Context, values [][]byte) error {
	_, err := q.pool.Exec(ctx, `SELECT weir.enqueue('bench', v) FROM unnest($1::bytea[]) AS v`, values)
	return err
}

func (q sqlQueue) Work(ctx context.Context, workers, batch int, handle func([]byte)) error {
	var all errgroup.Group
	for range workers {
		all.Go(func() error {
			return q.pool.AcquireFunc(context.WithoutCancel(ctx), func(conn *pgxpool.Conn) error {
				for ctx.Err() == nil {
					if err := take(context.WithoutCancel(ctx), conn.Conn(), batch, handle); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	return all.Wait()
}

// take claims messages, handles them, and acknowledges them in a transaction.
func take(ctx context.Context, conn *pgx.Conn, batch int, handle func([]byte)) error {
	var messages []byte
	if err := conn.QueryRow(ctx, `CALL weir.claim('bench', $1, wait => '1 s')`, batch).Scan(&messages); err != nil {
		return err
	}
	var got []struct {
		Receipt string  `json:"receipt"`
		Value   *string `json:"value"`
		Base64  []byte  `json:"value_b64"`
	}
	if err := json.Unmarshal(messages, &got); err != nil || len(got) == 0 {
		return err
	}
	receipts := make([]string, len(got))
	for i, m := range got {
		receipts[i] = m.Receipt
		if m.Value != nil {
			m.Base64 = []byte(*m.Value)
		}
		if len(m.Base64) < 16 {
			return errors.New("a message came back cut off: " + base64.StdEncoding.EncodeToString(m.Base64))
		}
		handle(m.Base64)
	}
	_, err := conn.Exec(ctx, `SELECT weir.ack(r) FROM unnest($1::text[]) AS r`, receipts)
	return err
}
