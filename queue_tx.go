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

// EnqueueTx enqueues messages within a transaction of the caller's, on the PostgreSQL database that holds the log: they exist if it commits, and never did if
// it rolls back, or back to a savepoint before them. They may be claimed a few milliseconds after the commit. It costs one trip, however many they are.
//
// It does not say where they are: they have no place before the commit. A message whose unique key another one has then, that is not done, is dropped. A
// delay counts from this call. Headers and unique keys must be text (UTF-8), header keys must not repeat within a message; a message's Time is that of this
// call. After any error from the database, such as ErrUnknownQueue or ErrTooLarge, PostgreSQL takes nothing more but a rollback. ErrNotPostgres on any
// other store.
func (l *Log) EnqueueTx(ctx context.Context, tx PgxTx, name string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, pgxExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

// EnqueueSQLTx is EnqueueTx for database/sql.
func (l *Log) EnqueueSQLTx(ctx context.Context, tx SQLTx, name string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, sqlExec(tx), name, messages), "enqueue to queue %q in a transaction", name)
}

func (l *Log) enqueueIn(ctx context.Context, run exec, name string, messages []NewMessage) (err error) {
	if err := l.usable(); err != nil {
		return err
	}
	if l.sql == nil {
		return ErrNotPostgres
	}
	if len(messages) == 0 {
		return nil
	}
	if err := checkText("queue", name); err != nil {
		return err
	}
	var trace []Header
	if l.opts.Tracer != nil {
		var end func(error)
		ctx, end = l.opts.Tracer.Start(ctx, "publish", eventlog.SpanInfo{Topic: name, Records: len(messages)})
		defer func() { end(err) }()
		trace = l.opts.Tracer.Inject(ctx)
	}
	var keys, values, headers, delays, times, priorities, uniques list
	for i, m := range messages {
		object, err := headersJSON(m.Headers, trace)
		if err == nil {
			err = checkText("unique key", m.Unique)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		keys.add(octets(m.Key), m.Key != nil)
		values.add(octets(m.Value), true)
		headers.add(object, true)
		delays.add(fmt.Sprintf("%d milliseconds", m.Delay.Milliseconds()), m.Delay != 0)
		times.add(m.At.UTC().Format(time.RFC3339Nano), !m.At.IsZero())
		priorities.add(strconv.Itoa(m.Priority), true)
		uniques.add(m.Unique, m.Unique != "")
	}
	return explain(run(ctx, enqueueEach, name, keys.String(), values.String(), headers.String(), delays.String(), times.String(), priorities.String(), uniques.String()))
}

// AckTx acknowledges the message within the handler's own transaction, on the PostgreSQL database that holds the log: it is done if the transaction commits. So what
// the handler writes there, it writes exactly once, whatever crashes when, as long as all workers of the queue acknowledge so. The transaction has to be READ COMMITTED.
//
// It may be called while the handler runs, and the transaction must be over when the handler returns. With ErrClaimLost roll back and return it: another worker
// has handled the message, or has it now. When the handler returns nil the message is done, whatever became of the transaction. When it returns an
// error the message comes again when its lease has ended, unless the transaction was committed all the same.
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

// errInDoubt: a handler that failed may have committed its ack, or the server is still about to. The message is left where it is: whoever claims it next,
// when the lease has ended, finds out.
var errInDoubt = errors.New("it is not known whether its transaction was committed")

// reconcile finds out, after a handler failed, whether its transaction, or another's, was committed all the same: then the message is done.
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
		w.log.logger.Warn("a handler failed after it acknowledged its message in a transaction: the message rests for its lease",
			"queue", w.opts.Queue, "message", m.ID.String(), "failed", failed, "err", err)
		return errInDoubt
	}
	return failed
}
