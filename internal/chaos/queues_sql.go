package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/judge"
)

// enqueueSQL enqueues in a transaction, with one more message that is rolled back to a savepoint.
// Now and then all of it is rolled back. A marker in the same transaction tells what was committed.
func (w *world) enqueueSQL(ctx context.Context, random *rand.Rand, msg *judge.Message) {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	w.model.EnqueuesInSQL(msg)
	undone := random.IntN(6) == 0
	err := pgx.BeginFunc(ctx, w.sql, func(tx pgx.Tx) error {
		const enqueue = `SELECT weir.enqueue($1, $2::text, nullif($3, ''), delay => $4, priority => $5)`
		if _, err := tx.Exec(ctx, `SAVEPOINT here`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, enqueue, msg.Queue, msg.Value+": rolled back to a savepoint", msg.Key, msg.Delay, msg.Priority); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `ROLLBACK TO SAVEPOINT here`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, enqueue, msg.Queue, msg.Value, msg.Key, msg.Delay, msg.Priority); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `INSERT INTO markers VALUES ($1)`, msg.Value); err != nil {
			return err
		}
		if undone {
			return errUndo
		}
		return nil
	})
	w.model.Enqueued(msg, outcomeInSQL(err), "", false)
}

// outcomeInSQL says what became of a transaction: an error of the server's is one of a statement
// before the commit, unless it ended the session.
func outcomeInSQL(err error) judge.Outcome {
	var said *pgconn.PgError
	switch {
	case err == nil:
		return judge.Done
	case errors.Is(err, errUndo), errors.As(err, &said) && said.Severity == "ERROR":
		return judge.Refused
	}
	return judge.Unknown
}

// claimSQL claims messages with CALL weir.claim.
func (w *world) claimSQL(ctx context.Context, q judge.WorkQueue, worker string, most int, wait time.Duration) ([]*judge.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	asked := w.now()
	var text []byte
	if err := w.sql.QueryRow(ctx, `CALL weir.claim($1, $2, $3, $4, $5)`, q.Name, most, leaseOfQueues, wait, worker).Scan(&text); err != nil {
		return nil, err
	}
	var answer []struct {
		ID, Receipt, Value string
		Attempt            int
		Until              time.Time
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return nil, fmt.Errorf("%s: %w", text, err)
	}
	var got []*judge.Grant
	for _, c := range answer {
		g := &judge.Grant{Receipt: c.Receipt, Attempt: c.Attempt, Asked: asked, Until: c.Until.UnixMilli(), Lease: leaseOfQueues}
		if g = w.model.Grants(q, worker, g, c.Value, c.ID); g != nil {
			got = append(got, g)
		}
	}
	w.counts.addN("messages claimed with SQL from "+q.Name, len(got))
	return got, nil
}

// answerSQL answers for a message in a transaction that writes down that it was worked. A
// transaction that is rolled back answered nothing.
func (w *world) answerSQL(ctx context.Context, random *rand.Rand, g *judge.Grant) judge.Outcome {
	ctx, cancel := context.WithTimeout(ctx, clientPatience)
	defer cancel()
	verb, call, delay := "ack", `SELECT weir.ack($1)`, time.Duration(0)
	args := []any{g.Receipt}
	if random.IntN(8) == 0 {
		delay = time.Duration(random.IntN(600)) * time.Millisecond
		verb, call, args = "nack", `SELECT weir.nack($1, 'it fails now and then', $2)`, []any{g.Receipt, delay}
	}
	undone := random.IntN(10) == 0
	var before, after time.Duration
	switch hold := time.Duration(random.IntN(3000)) * time.Millisecond; random.IntN(40) { // past the lease, too
	case 0:
		before = hold
	case 1, 2:
		after = hold
	}
	a := w.model.AnswersInSQL(g, verb, delay)
	err := pgx.BeginFunc(ctx, w.sql, func(tx pgx.Tx) error {
		if verb == "ack" && !w.model.QueuePasses[g.Message.Queue] { // a queue that is made anew hands out again what its topic has
			if _, err := tx.Exec(ctx, `INSERT INTO worked VALUES ($1, $2)`, g.Message.Value, g.Receipt); err != nil {
				return err
			}
		}
		pause(ctx, before)
		if _, err := tx.Exec(ctx, call, args...); err != nil {
			return err
		}
		pause(ctx, after)
		if undone {
			return errUndo
		}
		return nil
	})
	o := outcomeInSQL(err)
	if err != nil {
		w.history.Add(fmt.Sprintf("%s could not %s %s: %v", g.Worker, verb, g.Message.Value, err), g.Message.Queue)
	}
	w.model.Answered(g, a, o, false)
	w.counts.add(fmt.Sprintf("%ss with SQL %v", verb, o))
	return o
}

// workSQL works all queues with SQL alone.
func (w *world) workSQL(ctx context.Context, nth int) {
	worker := fmt.Sprintf("sqlworker%d", nth)
	random := w.random(worker)
	for ctx.Err() == nil {
		q := queues[random.IntN(len(queues))]
		got, err := w.claimSQL(context.WithoutCancel(ctx), q, worker, 1+random.IntN(8), time.Duration(random.IntN(3))*200*time.Millisecond)
		if err != nil {
			pause(ctx, 100*time.Millisecond)
		}
		for _, g := range got {
			if random.IntN(30) > 0 { // else it dies with the message
				w.answerSQL(context.WithoutCancel(ctx), random, g)
			}
		}
	}
}

// countWorked reads what was written in transactions that acknowledged.
func (w *world) countWorked(ctx context.Context) error {
	asked := w.now()
	rows, err := w.sql.Query(ctx, `SELECT value, receipt FROM worked`)
	if err != nil {
		return err
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[judge.Result])
	if err == nil {
		w.model.Works(asked, list)
	}
	return err
}
