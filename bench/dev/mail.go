package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir"
)

// The load of the durable e-mail service on LISTEN and NOTIFY: so many messages of about 70 bytes
// are scheduled in one go, then handled by so many workers.
const (
	mails       = 20_000
	mailWorkers = 32
	mailText    = "Dear customer, your order was sent, and will reach you within the week."
)

// mailRow is a way to schedule mails and to handle them.
type mailRow struct {
	name     string
	schedule func(ctx context.Context) error
	handle   func(ctx context.Context) error // all of them, each marked as sent
}

// runMail takes turns on one PostgreSQL: a bare insert of the same rows, the e-mail service from
// its description, and weir.
func runMail(ctx context.Context, b *bench) error {
	address, closeStore, err := b.store("postgres")
	if err != nil {
		return err
	}
	defer closeStore()
	pool, err := connections(ctx, address, mailWorkers+2)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `
		CREATE TABLE bare (id bigserial PRIMARY KEY, subject text, to_ text[], body text, status text, created_at timestamptz NOT NULL DEFAULT now());
		CREATE TABLE email_messages (LIKE bare INCLUDING ALL, error text, updated_at timestamptz)`); err != nil {
		return err
	}
	log, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return err
	}
	defer log.Close(context.WithoutCancel(ctx))
	if err := log.EnsureQueue(ctx, weir.Queue{Name: "mail", Partitions: 4}); err != nil {
		return err
	}
	service := &mailService{pool: pool}
	rows := []mailRow{
		{"bare insert", func(ctx context.Context) error { return insertMails(ctx, pool, "bare", nil) }, nil},
		{"the e-mail service's", service.schedule, service.handle},
		{"weir", func(ctx context.Context) error { return enqueueMails(ctx, log) }, func(ctx context.Context) error { return workMails(ctx, log) }},
	}
	fmt.Printf("%d messages, %d workers:\n\n| | scheduled/s | handled/s |\n| --- | --- | --- |\n", mails, mailWorkers)
	scheduled, handled := make(map[string][]float64), make(map[string][]float64)
	rate := func(do func(context.Context) error) (float64, error) {
		begin := time.Now()
		err := do(ctx)
		return mails / time.Since(begin).Seconds(), err
	}
	for range b.runs {
		for _, r := range rows {
			in, err := rate(r.schedule)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			scheduled[r.name] = append(scheduled[r.name], in)
			if r.handle == nil {
				fmt.Printf("| %s | %.0f | – |\n", r.name, in)
				continue
			}
			out, err := rate(r.handle)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			handled[r.name] = append(handled[r.name], out)
			fmt.Printf("| %s | %.0f | %.0f |\n", r.name, in, out)
		}
	}
	fmt.Printf("\nMedians: weir schedules %.1f times, and handles %.1f times as many a second as the e-mail service; a bare insert is %.1f times as fast as the service's.\n",
		median(scheduled["weir"])/median(scheduled["the e-mail service's"]), median(handled["weir"])/median(handled["the e-mail service's"]),
		median(scheduled["bare insert"])/median(scheduled["the e-mail service's"]))
	return nil
}

// insertMails inserts rows, 500 a statement, in one transaction.
func insertMails(ctx context.Context, pool *pgxpool.Pool, table string, then func(context.Context, pgx.Tx, []int64) error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for range mails / 500 {
			rows, err := tx.Query(ctx, `INSERT INTO `+table+` (subject, to_, body, status) SELECT 'Your order', ARRAY['a@example.org'], $1, 'scheduled' FROM generate_series(1, 500) RETURNING id`, mailText)
			if err != nil {
				return err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			if then != nil {
				if err := then(ctx, tx, ids); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// mailService is the e-mail service from its description: the transaction that inserts notifies of
// the ids, 350 at a time; who listens claims those ids in one statement, then handles them side by
// side, each marked by a statement of its own.
type mailService struct {
	pool *pgxpool.Pool
	told [][]byte // what was notified
}

func (s *mailService) schedule(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, s.pool.Config().ConnString())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `LISTEN email_messages`); err != nil {
		return err
	}
	var pending []int64
	notify := func(ctx context.Context, tx pgx.Tx, ids []int64) error {
		for pending = append(pending, ids...); len(pending) > 0; {
			n := min(350, len(pending))
			payload, _ := json.Marshal(pending[:n])
			if _, err := tx.Exec(ctx, `SELECT pg_notify('email_messages', $1)`, string(payload)); err != nil {
				return err
			}
			pending = pending[n:]
		}
		return nil
	}
	if err := insertMails(ctx, s.pool, "email_messages", notify); err != nil {
		return err
	}
	for n := 0; n < mails; {
		heard, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		var ids []int64
		if err := json.Unmarshal([]byte(heard.Payload), &ids); err != nil {
			return err
		}
		s.told, n = append(s.told, []byte(heard.Payload)), n+len(ids)
	}
	return nil
}

func (s *mailService) handle(ctx context.Context) error {
	for _, told := range s.told {
		var ids []int64
		if err := json.Unmarshal(told, &ids); err != nil {
			return err
		}
		rows, err := s.pool.Query(ctx, `
			WITH mine AS (SELECT id FROM email_messages WHERE id = ANY ($1) AND status = 'scheduled' FOR UPDATE SKIP LOCKED)
			UPDATE email_messages m SET status = 'claimed', updated_at = now() FROM mine WHERE m.id = mine.id RETURNING m.id`, ids)
		if err != nil {
			return err
		}
		claimed, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		var sending errgroup.Group
		sending.SetLimit(mailWorkers)
		for _, id := range claimed {
			sending.Go(func() error {
				_, err := s.pool.Exec(ctx, `UPDATE email_messages SET status = 'sent', updated_at = now() WHERE id = $1 AND status = 'claimed'`, id)
				return err
			})
		}
		if err := sending.Wait(); err != nil {
			return err
		}
	}
	s.told = nil
	return nil
}

func enqueueMails(ctx context.Context, log *weir.Log) error {
	messages := make([]weir.NewMessage, 1000)
	for i := range messages {
		messages[i].Value = []byte(mailText)
	}
	var all errgroup.Group
	for range mails / len(messages) {
		all.Go(func() error {
			_, err := log.Enqueue(ctx, "mail", messages...)
			return err
		})
	}
	return all.Wait()
}

func workMails(ctx context.Context, log *weir.Log) error {
	var left atomic.Int64
	left.Store(mails)
	done := make(chan struct{})
	w, err := log.Work(ctx, weir.WorkOptions{Queue: "mail", Concurrency: mailWorkers, Handler: func(context.Context, weir.Job) error {
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	}})
	if err != nil {
		return err
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
	return w.Close(context.WithoutCancel(ctx)) // which acknowledges the last of them
}
