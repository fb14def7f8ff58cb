package weir

import (
	"context"
	"database/sql"
	_ "embed" // the statements
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/publish"
)

// PgxTx is the caller's transaction with pgx: a pgx.Tx.
type PgxTx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// SQLTx is the caller's transaction with database/sql: a *sql.Tx, with any driver for the store's
// database.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

var (
	//go:embed sql/publish_all.sql
	publishAll string
	//go:embed sql/publish_each.sql
	publishEach string
	//go:embed sql/commit_offset.sql
	commitOffset string
	//go:embed sql/enqueue.sql
	enqueueEach string
	//go:embed sql/enqueue_all.sql
	enqueueAll string
	//go:embed sql/ack.sql
	ackReceipt string
)

// exec runs a statement in the caller's transaction. All arguments are strings or nil, which every
// driver can send.
type exec func(ctx context.Context, sql string, args ...any) error

func pgxExec(tx PgxTx) exec {
	return func(ctx context.Context, sql string, args ...any) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	}
}

func sqlExec(tx SQLTx) exec {
	return func(ctx context.Context, sql string, args ...any) error {
		_, err := tx.ExecContext(ctx, sql, args...)
		return err
	}
}

// PublishTx publishes events within the caller's transaction, on the PostgreSQL database that holds
// the log: the events exist if the transaction commits. They are discarded if it rolls back, or
// rolls back to a savepoint before the call. They are delivered a few milliseconds after the
// commit, in the order in which they were published. An open transaction does not delay other
// events. The call costs one round trip, however many events it has.
//
// Headers must be text (UTF-8), header keys must not repeat within an event, and a tombstone needs
// a key. Otherwise, and for an invalid topic name or a partition that does not exist, the error is
// an *InvalidError. An event's Time is ignored: the event gets the time of this call. After any
// error from the database, such as ErrUnknownTopic or ErrTooLarge, PostgreSQL accepts nothing but a
// rollback. On any other store the error is ErrNotPostgres.
//
// On a store made of shards the transaction may be on the PostgreSQL database of any shard,
// whichever shards the partitions are on. Events with the same key then keep their order only if
// they are published in the same database (docs/sql.md).
func (l *Log) PublishTx(ctx context.Context, tx PgxTx, events ...Event) error {
	return wrap(l.publishIn(ctx, pgxExec(tx), events), "publish in a transaction")
}

// PublishSQLTx is PublishTx for database/sql. It also publishes in transactions on MariaDB, MySQL
// and SQLite, if the log is in the same database: there the events of one transaction keep their
// order, and come before those of a transaction that began after its commit; on SQLite they are
// delivered up to 0.2 s after the commit. The transaction's user needs the right to insert into the
// table weir_inbox. On a store made of shards PublishSQLTx returns an error if some shards are on
// PostgreSQL and others are not.
func (l *Log) PublishSQLTx(ctx context.Context, tx SQLTx, events ...Event) error {
	return wrap(l.publishSQL(ctx, tx, events), "publish in a transaction")
}

func (l *Log) publishSQL(ctx context.Context, tx SQLTx, events []Event) error {
	if err := l.usable(); err != nil {
		return err
	}
	onPostgres, onOthers := l.databases()
	if onPostgres && onOthers {
		return errors.New("the store has shards on PostgreSQL and on other databases, and a *sql.Tx does not say which one it is on: use PublishTx with pgx on PostgreSQL, and the statements of docs/sql.md elsewhere")
	}
	if onOthers {
		return l.publishRows(ctx, tx, events)
	}
	return l.publishIn(ctx, sqlExec(tx), events)
}

// databases says in which databases transactions can publish.
func (l *Log) databases() (onPostgres, onOthers bool) {
	if l.sql != nil || l.inbox != nil {
		return l.sql != nil, l.inbox != nil
	}
	return inbox.Databases(l.store)
}

func (l *Log) publishIn(ctx context.Context, run exec, events []Event) error {
	if err := l.usable(); err != nil {
		return err
	}
	if onPostgres, _ := l.databases(); !onPostgres {
		return ErrNotPostgres
	}
	if l.sql == nil { // on shards the database need not have the topics: check them here
		for i, e := range l.outgoing(nil, events) {
			if _, err := l.checkRow(ctx, &e); err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
		}
	}
	to := TxPublisher{Tracer: l.opts.Tracer}
	if l.opts.Partitioner == nil {
		return to.publish(ctx, run, events, nil)
	}
	return to.publish(ctx, run, events, l.choose)
}

// TxPublisher publishes and enqueues within the caller's transactions without a Log: for programs
// that only publish, perhaps with a role that is a member of weir_producer and may do nothing else.
// It has no connection of its own. A process that has the log open, such as `weir serve`, delivers
// what was committed. The zero value is ready to use. Methods may be called concurrently.
type TxPublisher struct {
	Tracer Tracer // gets a span of each call, and puts its context into the headers; default: none
}

// PublishTx is Log.PublishTx. It needs no round trip to choose partitions: PostgreSQL chooses them,
// as Kafka's clients do.
func (t TxPublisher) PublishTx(ctx context.Context, tx PgxTx, events ...Event) error {
	return wrap(t.publish(ctx, pgxExec(tx), events, nil), "publish in a transaction")
}

// PublishSQLTx is PublishTx for database/sql.
func (t TxPublisher) PublishSQLTx(ctx context.Context, tx SQLTx, events ...Event) error {
	return wrap(t.publish(ctx, sqlExec(tx), events, nil), "publish in a transaction")
}

// publish publishes events to the partitions that choose returns; nil: PostgreSQL chooses them.
func (t TxPublisher) publish(ctx context.Context, run exec, events []Event, choose func(context.Context, *Event) (int32, error)) (err error) {
	if len(events) == 0 {
		return nil
	}
	var topics, keys, values, headers, partitions list
	var trace []Header
	if t.Tracer != nil {
		var end func(error)
		ctx, end = t.Tracer.Start(ctx, "publish", spanOf(eventlog.SpanInfo{Topic: events[0].Topic}, events))
		defer func() { end(err) }()
		trace = headersOut(t.Tracer.Inject(ctx))
	}
	alike := true // all have one topic, the same headers and a value, and no Partitioner chooses their partitions
	first := ""
	for i := range events {
		e := &events[i]
		object, err := headersJSON(e.Headers, trace)
		if err == nil && e.Key == nil && e.Value == nil {
			err = &InvalidError{What: "event", Value: e.Topic, Why: "it has neither key nor value: an event without a value is a tombstone, which needs a key"}
		}
		if err == nil && (i == 0 || e.Topic != events[i-1].Topic) {
			err = eventlog.CheckTopicName(e.Topic)
		}
		partition, chosen := int32(0), choose != nil
		if err == nil && chosen {
			partition, err = choose(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if i == 0 {
			first = object
		}
		alike = alike && e.Topic == events[0].Topic && object == first && e.Value != nil && !chosen
		topics.add(e.Topic, true)
		keys.add(octets(e.Key), e.Key != nil)
		values.add(octets(e.Value), e.Value != nil)
		headers.add(object, true)
		partitions.add(strconv.Itoa(int(partition)), chosen)
	}
	if alike {
		return explain(run(ctx, publishAll, events[0].Topic, keys.String(), values.String(), first))
	}
	return explain(run(ctx, publishEach, topics.String(), keys.String(), values.String(), headers.String(), partitions.String()))
}

// choose asks the partitioner.
func (l *Log) choose(ctx context.Context, e *Event) (int32, error) {
	topic, err := l.log.Topic(ctx, e.Topic)
	if err != nil {
		return 0, err
	}
	n := len(topic.Partitions)
	number := l.opts.Partitioner(e, n)
	if number < 0 || int(number) >= n {
		return 0, &InvalidError{What: "partition", Value: strconv.Itoa(int(number)),
			Why: fmt.Sprintf("the partitioner returned it, and topic %q has %d partitions, numbered from 0", e.Topic, n)}
	}
	return number, nil
}

// headersJSON returns an event's headers as a JSON object. It adds the trace headers, unless the
// event has trace headers of its own.
func headersJSON(headers, trace []Header) (string, error) {
	if len(headers) == 0 && len(trace) == 0 {
		return "{}", nil
	}
	object := make(map[string]*string, len(headers)+len(trace))
	for _, h := range headers {
		if _, twice := object[h.Key]; twice {
			return "", &InvalidError{What: "header", Value: h.Key, Why: "an event that is published in a transaction cannot have two headers with one name"}
		}
		if err := errors.Join(checkText("header key", h.Key), checkText("header "+h.Key, string(h.Value))); err != nil {
			return "", err
		}
		object[h.Key] = nil
		if h.Value != nil {
			value := string(h.Value)
			object[h.Key] = &value
		}
	}
	_, parent := object[eventlog.TraceParent]
	_, state := object[eventlog.TraceState]
	if !parent && !state {
		for _, h := range trace {
			value := string(h.Value)
			object[h.Key] = &value
		}
	}
	text, err := json.Marshal(object)
	return string(text), err
}

// checkText checks that PostgreSQL accepts a text.
func checkText(what, text string) error {
	if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
		return &InvalidError{What: what, Value: fmt.Sprintf("%.64q", text), Why: "in a transaction it must be UTF-8 text without zero bytes: encode it, in Base64 for example"}
	}
	return nil
}

// octets returns bytes as the text of a bytea.
func octets(b []byte) string { return `\x` + hex.EncodeToString(b) }

// list builds the text of a PostgreSQL array. It writes an empty element in place of NULL, and the
// statements turn that into NULL: if the caller's session has array_nulls = off, the word NULL
// would be read as a text.
type list struct{ b strings.Builder }

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (l *list) add(element string, is bool) {
	if l.b.Len() > 0 {
		l.b.WriteByte(',')
	}
	l.b.WriteByte('"')
	if is {
		_, _ = quoted.WriteString(&l.b, element) // a Builder returns no errors
	}
	l.b.WriteByte('"')
}

func (l *list) String() string { return "{" + l.b.String() + "}" }

// explain maps the errors of weir's SQL functions to the errors of this package.
func explain(err error) error {
	var state interface{ SQLState() string } // errors of pgx, and of other drivers, have this method
	if !errors.As(err, &state) {
		return err
	}
	switch state.SQLState() {
	case "WE001":
		return fmt.Errorf("%w: create it with EnsureTopic or weir topic create (%w)", ErrUnknownTopic, err)
	case "WE008":
		return fmt.Errorf("%w (%w)", ErrClaimLost, err)
	case "WE007":
		return fmt.Errorf("%w: create it with EnsureQueue or weir queue create (%w)", ErrUnknownQueue, err)
	case "WE003":
		return fmt.Errorf("%w (%w)", ErrTooLarge, err)
	case "WE004":
		return fmt.Errorf("%w (%w)", ErrHandled, err)
	case "WE005":
		return fmt.Errorf("%w (%w)", ErrNotAssigned, err)
	case "3F000", "42883": // no such schema, no such function
		return fmt.Errorf("the transaction is not on the database that holds the log: %w", err)
	}
	return err
}

// CommitTx commits, within the handler's own transaction on the database that holds the log, that
// the event and all events before it in its partition were handled. So the handler's writes in that
// transaction happen exactly once, also after crashes. In a batch, call it on the last event. The
// handler calls it, and must end the transaction before it returns. If CommitTx returns an error,
// roll back and return that error. After ErrHandled the consumer continues after the events that
// another consumer has handled.
//
// The handler's result decides. If it returns nil the event counts as handled, even if the
// transaction was rolled back: a handler that rolls back and returns nil skips the event, whose
// offset is then committed as without CommitTx. If it returns an error the event comes again,
// unless the transaction was committed.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, `INSERT INTO bills …`); err != nil {
//			return err
//		}
//		return e.CommitTx(ctx, tx)
//	})
func (e Event) CommitTx(ctx context.Context, tx PgxTx) error {
	return wrap(e.commitIn(ctx, pgxExec(tx)), "commit %s/%d up to offset %d in a transaction", e.Topic, e.Partition, e.Offset)
}

// CommitSQLTx is CommitTx for database/sql.
func (e Event) CommitSQLTx(ctx context.Context, tx SQLTx) error {
	return wrap(e.commitIn(ctx, sqlExec(tx)), "commit %s/%d up to offset %d in a transaction", e.Topic, e.Partition, e.Offset)
}

func (e Event) commitIn(ctx context.Context, run exec) error {
	if e.from == nil {
		return errors.New("no consumer has delivered the event")
	}
	if err := e.log.usable(); err != nil {
		return err
	}
	if e.log.sql == nil {
		return ErrNotPostgres
	}
	return e.from.CommitTx(ctx, eventlog.Offset(e.Offset), func(ctx context.Context, c deliver.TxCommit) error {
		var from any
		if c.From != nil {
			from = strconv.FormatInt(int64(*c.From), 10)
		}
		return explain(run(ctx, commitOffset, c.Group, c.Topic.String(), strconv.Itoa(int(c.Partition)), strconv.FormatInt(int64(c.Next), 10), from, c.Member))
	})
}

// spanOf adds events to the description of a span: their number, and links to the spans in their
// headers.
func spanOf(info eventlog.SpanInfo, events []Event) eventlog.SpanInfo {
	info.Records = len(events)
	for i := range events {
		info.Link(headersIn(events[i].Headers))
	}
	return info
}

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
		trace = headersOut(t.Inject(ctx))
	}
	now := time.Now().UnixMilli()
	var args []any
	for i, e := range l.outgoing(nil, events) {
		object, err := headersJSON(events[i].Headers, trace)
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
	if l.inbox != nil { // nil on shards: their movers find the rows when they look again
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

// EnqueueTx enqueues messages within the caller's transaction, on the PostgreSQL database that
// holds the log: the messages exist if the transaction commits. They never exist if it rolls back,
// or rolls back to a savepoint before the call. They can be claimed a few milliseconds after the
// commit. The call costs one trip.
//
// EnqueueTx returns no message ids: weir assigns them after the commit. At that time a message is
// dropped if another message that is not done has its unique key. A delay counts from this call,
// whose time is the message's Time. Headers and unique keys must be text (UTF-8); header keys must
// not repeat within a message. After any error from the database, such as ErrUnknownQueue or
// ErrTooLarge, PostgreSQL accepts nothing but a rollback. On any other store the error is
// ErrNotPostgres.
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
		trace = headersOut(t.Tracer.Inject(ctx))
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
