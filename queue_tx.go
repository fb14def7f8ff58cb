package weir

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// EnqueueTx enqueues messages within a transaction of the caller's, on the PostgreSQL database that holds the log: they exist if it commits, and never did if
// it rolls back, or back to a savepoint before them. They may be claimed a few milliseconds after the commit. It costs one trip, however many they are.
//
// It does not say where they are: they have no place before the commit. A message whose unique key another one has then, that is not done, is dropped. A
// delay counts from this call. Headers and unique keys must be text (UTF-8), header keys must not repeat within a message; a message's Time is that of this
// call. After any error from the database, such as ErrUnknownQueue or ErrTooLarge, PostgreSQL takes nothing more but a rollback. ErrNotPostgres on any
// other store.
func (l *Log) EnqueueTx(ctx context.Context, tx PgxTx, queue string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, pgxExec(tx), queue, messages), "enqueue to queue %q in a transaction", queue)
}

// EnqueueSQLTx is EnqueueTx for database/sql.
func (l *Log) EnqueueSQLTx(ctx context.Context, tx SQLTx, queue string, messages ...NewMessage) error {
	return wrap(l.enqueueIn(ctx, sqlExec(tx), queue, messages), "enqueue to queue %q in a transaction", queue)
}

func (l *Log) enqueueIn(ctx context.Context, run exec, queue string, messages []NewMessage) (err error) {
	if err := l.usable(); err != nil {
		return err
	}
	if l.sql == nil {
		return ErrNotPostgres
	}
	if len(messages) == 0 {
		return nil
	}
	if err := checkText("queue", queue); err != nil {
		return err
	}
	var trace []Header
	if l.opts.Tracer != nil {
		var end func(error)
		ctx, end = l.opts.Tracer.Start(ctx, "publish", eventlog.SpanInfo{Topic: queue, Records: len(messages)})
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
	return explain(run(ctx, enqueueEach, queue, keys.String(), values.String(), headers.String(), delays.String(), times.String(), priorities.String(), uniques.String()))
}
