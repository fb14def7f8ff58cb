package weir

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
)

// insertMax is how many events one INSERT has at most: SQLite allows 32,766 arguments, MySQL
// 65,535.
const insertMax = 1000

// publishRows publishes events in a transaction on MariaDB, MySQL or SQLite, by inserting rows.
func (l *Log) publishRows(ctx context.Context, tx SQLTx, events []Event) (err error) {
	if len(events) == 0 {
		return nil
	}
	var trace []Header
	if t := l.opts.Tracer; t != nil {
		var end func(error)
		ctx, end = t.Start(ctx, "publish", spanOf(eventlog.SpanInfo{Topic: events[0].Topic}, events))
		defer func() { end(err) }()
		trace = t.Inject(ctx)
	}
	now := time.Now().UnixMilli()
	var args []any
	for i, e := range l.outgoing(nil, events) {
		object, err := headersJSON(e.Headers, trace)
		if err == nil && e.Key == nil && e.Value == nil {
			err = &InvalidError{What: "event", Value: e.Topic, Why: "it has neither key nor value: an event without a value is a tombstone, which needs a key"}
		}
		id := ""
		if err == nil {
			id, err = l.checkRow(ctx, &e)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		var partition any
		if l.opts.Partitioner != nil {
			number, err := l.choose(ctx, &events[i])
			if err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
			partition = int64(number)
		}
		args = append(args, e.Topic, id, column(e.Key), column(e.Value), object, partition, now)
	}
	const columns = 7
	for len(args) > 0 {
		some := min(len(args)/columns, insertMax)
		if _, err := tx.ExecContext(ctx, inbox.Insert(some), args[:some*columns]...); err != nil {
			if strings.Contains(err.Error(), "weir_inbox") {
				return fmt.Errorf("the transaction is not on the database that holds the log, or its user may not insert into weir_inbox: %w", err)
			}
			return err
		}
		args = args[some*columns:]
	}
	if l.inbox != nil { // else a shard's mover looks by itself
		l.inbox.Wake()
	}
	return nil
}

// checkRow refuses what the mover would refuse, and returns the topic's id.
func (l *Log) checkRow(ctx context.Context, e *publish.Event) (id string, err error) {
	topic, _, err := l.publisher.Choose(ctx, e)
	if errors.Is(err, ErrUnknownTopic) {
		err = fmt.Errorf("%w: create it with EnsureTopic or weir topic create", err)
	}
	return topic.ID.String(), err
}

// column returns bytes for a statement: nil is NULL.
func column(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}
