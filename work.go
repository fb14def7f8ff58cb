package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/queue"
)

// WorkOptions say which queue is worked and how. Queue and Handler are required; the zero value of
// every other field is a sensible default.
type WorkOptions struct {
	Queue string
	// Handler handles one message. If it returns nil the message is done. If it returns an error
	// the message comes again after the queue's pause for so many failed attempts, or after the
	// pause of RetryAfter. After the last attempt, or Permanent, it becomes a dead letter. A panic
	// counts as an error.
	//
	// ctx ends when the claim was lost (context.Cause is ErrClaimLost) or Close does not wait for
	// the handler any longer. If the handler then returns an error that is not Permanent, the
	// attempt does not count: if this worker still has the message, it is given back and can be
	// claimed immediately.
	Handler JobHandler
	// Timeout is how long the handler may take for one message. After that its ctx ends
	// (context.Cause is an ErrHandlerTimeout), and the error that it returns counts as a failed
	// attempt. A handler that does not return then keeps its message. Default: no limit.
	Timeout time.Duration
	// Middleware wraps the handler; the first is the outermost.
	Middleware []func(JobHandler) JobHandler
	// Concurrency is how many messages are handled concurrently. Up to as many more, whose handlers
	// have returned, may wait for the store to record their result. Default 10; at most 10,000.
	Concurrency int
	// Lease is how long a claim lasts. The claim is extended while the handler runs. If the process
	// is killed, its messages can be claimed again when their leases end. Default: the queue's
	// lease.
	Lease time.Duration
	// Name is the worker's name, for people. Default: the program's name and process number.
	Name string
}

// JobHandler handles one message.
type JobHandler func(ctx context.Context, j Job) error

// Job is a message that was claimed.
type Job struct {
	Queue   string
	ID      MessageID
	Key     []byte // nil: none
	Value   []byte
	Headers []Header
	Time    time.Time // when it was enqueued; zero: unknown
	Attempt int       // from 1, over all processes

	log *Log
	job *queue.Job
}

// RetryAfter marks a handler's error: the message comes again after this pause instead of the
// queue's own. The attempt counts. RetryAfter(d, nil) is an error, too.
func RetryAfter(pause time.Duration, err error) error { return retry.After(pause, err) }

// Worker handles a queue's messages. Its methods may be called concurrently.
type Worker struct {
	log *Log
	w   *queue.Worker
}

// Work starts to claim messages of a queue and to call the handler for each. ctx bounds only the
// start; the worker works until it or the Log is closed. While the store is unavailable the worker
// waits. Any number of workers, in any number of processes, may work on one queue.
func (l *Log) Work(ctx context.Context, opts WorkOptions) (*Worker, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "work queue %q", opts.Queue)
	}
	w := queue.Work{Queue: opts.Queue, Timeout: opts.Timeout, Concurrency: opts.Concurrency, Lease: opts.Lease, Name: opts.Name}
	if handler := opts.Handler; handler != nil {
		for _, wrap := range slices.Backward(opts.Middleware) {
			handler = wrap(handler)
		}
		w.Handle = func(ctx context.Context, j *queue.Job) error {
			return handler(ctx, Job{
				Queue: opts.Queue, ID: MessageID(j.ID), Key: j.Key, Value: j.Value, Headers: headersOut(j.Headers), Time: j.Time, Attempt: j.Attempt, log: l, job: j,
			})
		}
	}
	below, err := l.queues.Worker(ctx, w)
	if err != nil {
		return nil, err
	}
	worker := &Worker{log: l, w: below}
	if !l.begin(worker, func() { below.Start(ctx) }) {
		return nil, fmt.Errorf("work queue %q: %w", opts.Queue, ErrClosed)
	}
	return worker, nil
}

// Close ends the worker in order: no more messages are claimed, running handlers finish, and their
// messages are acked or nacked. When ctx is about to end, the contexts of handlers that still run
// are cancelled. If such a handler then returns an error, its message is given back and the attempt
// does not count. A handler that does not return is left behind: its message comes again when its
// lease ends. Close returns at the latest a second after ctx ends. A handler must not call it.
func (w *Worker) Close(ctx context.Context) error {
	w.log.forget(w)
	return w.w.Close(ctx)
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
	if j.job == nil {
		return errors.New("no worker has claimed the message")
	}
	if err := j.log.usable(); err != nil {
		return err
	}
	if j.log.sql == nil {
		return ErrNotPostgres
	}
	return j.job.AckTx(ctx, func(ctx context.Context, receipt string) error { return explain(run(ctx, ackReceipt, receipt)) })
}
