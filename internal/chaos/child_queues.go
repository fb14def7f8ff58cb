package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/judge"
)

// enqueue enqueues one message.
func (c *child) enqueue(ctx context.Context, o order) judge.Word {
	m := weir.NewMessage{Value: []byte(o.Values[0]), Unique: o.Name, Delay: o.Session, Priority: o.N}
	if o.Key != "" {
		m.Key = []byte(o.Key)
	}
	at, err := c.log.Enqueue(ctx, o.Topic, m)
	said := judge.OutcomeOf(err)
	if err == nil {
		said.State, said.Once = at[0].ID.String(), at[0].Repeated
	}
	return said
}

// work begins to work a queue. The handler says what it has, and what it is about to answer, before
// it does so.
func (c *child) work(ctx context.Context, o order) error {
	_, err := c.log.Work(ctx, weir.WorkOptions{Queue: o.Topic, Concurrency: 3, Lease: o.Session, Name: o.Name, Handler: func(ctx context.Context, j weir.Job) error {
		said := &judge.Job{Queue: j.Queue, ID: j.ID.String(), Value: string(j.Value), Attempt: j.Attempt, Receipt: receiptOf(j)}
		tell := func(answer string) {
			said.Answer = answer
			c.say(judge.Word{Consumer: "Go worker at " + o.Name, Job: said})
		}
		tell("")
		dawdle()
		switch n := rand.IntN(40); {
		case n == 0 && o.Topic == "jobs", n < 12 && o.Topic == "failing":
			tell("reject")
			return weir.Permanent(errors.New("it is beyond repair"))
		case n < 4:
			tell("nack")
			return errors.New("it fails now and then")
		case n == 4:
			tell("nack")
			return weir.RetryAfter(rand.N(500*time.Millisecond), nil)
		case n < 24 && c.pool != nil:
			return c.ackTx(ctx, j, said, o.Name)
		}
		tell("ack")
		return nil
	}})
	return err
}

// receiptOf reads the receipt, which a Job keeps for itself: it tells the records of a redriven
// message apart, and the transactions that acknowledged.
func receiptOf(j weir.Job) string {
	receipt := reflect.ValueOf(j).FieldByName("job").Elem().FieldByName("Receipt")
	if receipt.Kind() != reflect.String {
		panic("a Job keeps its receipt elsewhere")
	}
	return receipt.String()
}

// handleMax bounds a transaction of a handler, so that the process ends in time.
const handleMax = 4 * time.Second

// ackTx writes a result and acknowledges in one transaction, with pgx or database/sql. Some are
// rolled back; and some handlers do not care whether their context ends, or fail after the commit.
func (c *child) ackTx(ctx context.Context, j weir.Job, said *judge.Job, worker string) error {
	tell := func(answer string, inTx bool, o judge.Outcome) {
		said.Answer, said.InTx = answer, inTx
		c.say(judge.Word{Consumer: "Go worker at " + worker, Job: said, Outcome: o})
	}
	if rand.IntN(2) == 0 {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, handleMax)
	defer cancel()
	tell("ack", true, judge.Pending)
	undone := rand.IntN(8) == 0
	var inside error // before the commit
	write := func(insert, ack func() error) error {
		if inside = insert(); inside == nil {
			dawdle()
			inside = ack()
		}
		dawdle()
		if inside == nil && undone {
			inside = errUndo
		}
		return inside
	}
	var err error
	const insert = `INSERT INTO worked VALUES ($1, $2)`
	if rand.IntN(3) == 0 {
		err = c.beginSQL(ctx, func(tx *sql.Tx) error {
			return write(func() error { _, err := tx.ExecContext(ctx, insert, said.Value, said.Receipt); return err }, func() error { return j.AckSQLTx(ctx, tx) })
		})
	} else {
		err = pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
			return write(func() error { _, err := tx.Exec(ctx, insert, said.Value, said.Receipt); return err }, func() error { return j.AckTx(ctx, tx) })
		})
	}
	o := judge.Unknown
	switch {
	case err == nil:
		o = judge.Done
	case inside != nil:
		o = judge.Refused
	}
	tell("ack", true, o)
	switch {
	case o != judge.Done:
		tell("nack", false, judge.Pending)
	case rand.IntN(10) == 0:
		err = errors.New("it fails after the commit")
	}
	return err
}

// beginSQL is pgx.BeginFunc for database/sql.
func (c *child) beginSQL(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := c.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
