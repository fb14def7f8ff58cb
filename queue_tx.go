package weir

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// EnqueueTx enqueues messages within the caller's transaction, on the PostgreSQL database that
// holds the log: they exist if it commits. They never exist if it rolls back, or rolls back to a
// savepoint before the call. They can be claimed a few milliseconds after the commit. It costs one
// trip.
//
// It returns no message ids: weir assigns them after the commit. At that time a message is dropped
// if another message that is not done has its unique key. A delay counts from this call; its time
// is the message's Time. Headers and unique keys must be text (UTF-8); header keys must not repeat
// within a message. After any error from the database, such as ErrUnknownQueue or ErrTooLarge,
// PostgreSQL accepts nothing but a rollback. On any other store the error is ErrNotPostgres.
func (l *Log) EnqueueTx(ctx context.Context, tx PgxTx, name string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, pgxExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

// EnqueueSQLTx is EnqueueTx for database/sql.
func (l *Log) EnqueueSQLTx(ctx context.Context, tx SQLTx, name string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, sqlExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

func (l *Log) enqueueIn(ctx context.Context, run exec, name string, messages []NewMessage) error {
	if err := l.usable(); err != nil {
		return err
	}
	if l.sql == nil {
		return ErrNotPostgres
	}
	return TxPublisher{Tracer: l.opts.Tracer}.enqueue(ctx, run, name, messages)
}

// EnqueueTx is Log.EnqueueTx.
func (t TxPublisher) EnqueueTx(ctx context.Context, tx PgxTx, name string, messages ...NewMessage) error {
	return wrap(t.enqueue(ctx, pgxExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

// EnqueueSQLTx is EnqueueTx for database/sql.
func (t TxPublisher) EnqueueSQLTx(ctx context.Context, tx SQLTx, name string, messages ...NewMessage) error {
	return wrap(t.enqueue(ctx, sqlExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

func (t TxPublisher) enqueue(ctx context.Context, run exec, name string, messages []NewMessage) (err error) {
	if len(messages) == 0 {
		return nil
	}
	if err := checkText("queue", name); err != nil {
		return err
	}
	var trace []Header
	if t.Tracer != nil {
		var end func(error)
		ctx, end = t.Tracer.Start(ctx, "publish", eventlog.SpanInfo{Topic: name, Records: len(messages)})
		defer func() { end(err) }()
		trace = t.Tracer.Inject(ctx)
	}
	var keys, values, headers, delays, times, priorities, uniques list
	first, alike := "", true
	for i, m := range messages {
		object, err := headersJSON(m.Headers, trace)
		if err == nil {
			err = checkText("unique key", m.Unique)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if i == 0 {
			first = object
		}
		alike = alike && object == first && m.Delay == 0 && m.At.IsZero() && m.Priority == 0 && m.Unique == ""
		keys.add(octets(m.Key), m.Key != nil)
		values.add(octets(m.Value), true)
		headers.add(object, true)
		delays.add(fmt.Sprintf("%d milliseconds", m.Delay.Milliseconds()), m.Delay != 0)
		times.add(m.At.UTC().Format(time.RFC3339Nano), !m.At.IsZero())
		priorities.add(strconv.Itoa(m.Priority), true)
		uniques.add(m.Unique, m.Unique != "")
	}
	if alike {
		return explain(run(ctx, enqueueAll, name, keys.String(), values.String(), first))
	}
	return explain(run(ctx, enqueueEach, name, keys.String(), values.String(), headers.String(), delays.String(), times.String(), priorities.String(), uniques.String()))
}

// AckTx acknowledges the message within the handler's own transaction, on the PostgreSQL database
// that holds the log: the message is done if the transaction commits. If all workers of the queue
// use AckTx, the handler's writes in that transaction happen exactly once, also after crashes. The
// transaction must be READ COMMITTED.
//
// Call it while the handler runs; the transaction must have ended when the handler returns. After
// ErrClaimLost roll back and return that error: another worker has handled the message, or has it
// now. If the handler returns nil the message is done, even if the transaction was rolled back. If
// it returns an error the message comes again when its lease has ended, unless the transaction was
// committed.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO bills …`); err != nil {
//			return err
//		}
//		return j.AckTx(ctx, tx)
//	})
func (j Job) AckTx(ctx context.Context, tx PgxTx) error {
	return wrap(j.ackIn(ctx, pgxExec(tx)), "ack message %v of queue %q in a transaction", j.ID, j.Queue)
}

// AckSQLTx is AckTx for database/sql.
func (j Job) AckSQLTx(ctx context.Context, tx SQLTx) error {
	return wrap(j.ackIn(ctx, sqlExec(tx)), "ack message %v of queue %q in a transaction", j.ID, j.Queue)
}

func (j Job) ackIn(ctx context.Context, run exec) error {
	if j.from == nil {
		return errors.New("no worker has claimed the message")
	}
	if err := j.from.log.usable(); err != nil {
		return err
	}
	if j.from.log.sql == nil {
		return ErrNotPostgres
	}
	j.from.mu.Lock()
	runs := j.from.running[j.job.receipt] == j.job
	j.job.inTx = true
	j.from.mu.Unlock()
	if !runs {
		return fmt.Errorf("%w: its handler has returned", ErrClaimLost)
	}
	err := explain(run(ctx, ackReceipt, j.job.receipt))
	if err == nil {
		j.from.mu.Lock()
		j.job.acked = true
		j.from.mu.Unlock()
	}
	return err
}

// errInDoubt: the handler failed, but its ack may have been committed, or may be soon. The message
// is neither acked nor nacked: the next claim, after its lease has ended, finds out.
var errInDoubt = errors.New("it is not known whether its transaction was committed")

// reconcile finds out, after a handler failed, whether its transaction, or that of another worker,
// has acked the message: then the message is done.
func (w *Worker) reconcile(j *job, m queue.Message, failed error) error {
	w.mu.Lock()
	inTx, mine, isDone := j.inTx, j.acked, j.done
	w.mu.Unlock()
	if isDone {
		return nil
	}
	if !inTx {
		return failed
	}
	ctx, cancel := context.WithTimeout(context.Background(), extendTimeout)
	defer cancel()
	acked := false
	err := w.log.withQueue(ctx, w.opts.Queue, func(q *queue.Queue) (err error) {
		acked, err = q.Acked(ctx, j.receipt)
		return err
	})
	switch {
	case acked:
		return nil
	case err != nil || mine:
		w.log.logger.Warn("a handler failed after it acknowledged its message in a transaction, and it is not known whether that was committed: if not, the message comes again when its lease ends",
			"queue", w.opts.Queue, "message", m.ID.String(), "failed", failed, "err", err)
		return errInDoubt
	}
	return failed
}
