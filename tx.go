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
// the log: they exist if it commits. They are discarded if it rolls back, or rolls back to a
// savepoint before the call. They are delivered a few milliseconds after the commit, in the order
// in which they were published. An open transaction does not delay other events. The call costs one
// round trip, however many events it has.
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
// table weir_inbox. On a store made of shards it is refused if some are on PostgreSQL and some on
// others.
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
	if l.sql == nil { // only shard 0 knows the topics
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
		trace = t.Tracer.Inject(ctx)
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

// list builds the text of a PostgreSQL array.
type list struct{ b strings.Builder }

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func (l *list) add(element string, is bool) {
	if l.b.Len() > 0 {
		l.b.WriteByte(',')
	}
	if !is {
		l.b.WriteString("NULL")
		return
	}
	l.b.WriteByte('"')
	_, _ = quoted.WriteString(&l.b, element) // a Builder returns no errors
	l.b.WriteByte('"')
}

func (l *list) String() string { return "{" + l.b.String() + "}" }

// explain maps the errors of weir's SQL functions to the errors of this package.
func explain(err error) error {
	var state interface{ SQLState() string } // of pgx, and of other drivers
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
	p := e.from
	if p == nil {
		return errors.New("no consumer has delivered the event")
	}
	if err := p.c.log.usable(); err != nil {
		return err
	}
	if p.c.log.sql == nil {
		return ErrNotPostgres
	}
	if call, runs := p.running(); !runs || eventlog.Offset(e.Offset) < call.first {
		return fmt.Errorf("%w: its handler has returned", ErrNotAssigned)
	}
	from, err := p.beginTx(ctx)
	if err != nil {
		return err
	}
	next := eventlog.Offset(e.Offset) + 1
	err = explain(run(ctx, commitOffset, p.c.sub.Group, p.key.Topic.String(), strconv.Itoa(int(p.name.Partition)),
		strconv.FormatInt(int64(next), 10), from, p.member))
	if errors.Is(err, ErrHandled) {
		err = p.catchUp(ctx, err)
	}
	p.endTx(next, err)
	return err
}

// beginTx commits what was handled before, and returns the offset that the group has if no earlier
// transaction was rolled back; nil if this call of the handler has already committed an offset.
func (p *partition) beginTx(ctx context.Context) (from any, err error) {
	if err := p.c.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.c.giveTurn()
	if err := p.c.commitNow(ctx, []*partition{p}); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen != p.seeks {
		return nil, fmt.Errorf("%w: Seek moved the consumer to another offset", ErrNotAssigned)
	}
	if p.inTx > 0 {
		return nil, nil
	}
	return strconv.FormatInt(int64(max(p.committed, p.claimed)), 10), nil
}

// errBehind: an earlier transaction that should have raised the group's offset was rolled back, and
// this transaction came before prove noticed that.
var errBehind = errors.New("the group's offset was too low, because an earlier transaction of this handler was rolled back; it is correct now: " +
	"roll this transaction back too and return this error; then the event is delivered again immediately")

// catchUp finds out why a commit was refused. Either another consumer committed first, or the
// group's offset is below what this consumer has handled: then it commits the handled offset, if
// the partition is still ours.
func (p *partition) catchUp(ctx context.Context, refused error) error {
	if err := p.c.takeTurn(ctx); err != nil {
		return err
	}
	defer p.c.giveTurn()
	at, err := p.c.positions(ctx, p)
	if err != nil {
		return fmt.Errorf("%w, after: %v", err, refused) // so it is unknown whether the event was handled
	}
	p.mu.Lock()
	before := at[0] > p.handled
	if !before {
		p.committed, p.claimed = at[0], 0
	}
	p.mu.Unlock()
	if before {
		return refused
	}
	if err := p.c.commitNow(ctx, []*partition{p}); err != nil {
		return fmt.Errorf("%w, after: %v", err, refused)
	}
	return errBehind
}

func (p *partition) endTx(next eventlog.Offset, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.inTx = next
	case errors.Is(err, ErrHandled):
		p.astray = true
	case errors.Is(err, ErrNotAssigned):
		p.notOurs = true
	case errors.Is(err, errBehind):
		p.behind = true
	}
}

// notOursPause is how long a partition waits after the group took it, or its topic was deleted:
// within that time the consumer learns of it.
const notOursPause = 5 * time.Second

// waitsForGroup waits, if the call's commit was refused because the partition is not ours, until
// the partition is taken away. It returns whether it was refused.
func (p *partition) waitsForGroup(wait context.Context) bool {
	p.mu.Lock()
	notOurs := p.notOurs
	p.mu.Unlock()
	if notOurs {
		sleep(wait, notOursPause)
	}
	return notOurs
}

func (p *partition) isAstray() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.astray
}

// reconcile finds out, after a call that failed or was refused, whether its transaction was
// committed, or another consumer committed first. It returns true if the failure does not count:
// the partition continues at the committed offset, or the event comes again.
func (p *partition) reconcile(ctx, wait context.Context) bool {
	p.mu.Lock()
	inTx, astray, behind, handled := p.inTx, p.astray, p.behind, p.handled
	p.mu.Unlock()
	if inTx == 0 && !astray {
		return behind
	}
	epoch := p.c.log.log.LeaderEpoch()
	at, err := p.c.positions(ctx, p)
	switch {
	case err != nil:
		p.c.logger.Warn("the group's offset cannot be read; trying again", p.attrs("err", err)...)
		sleep(wait, readPause)
		return true
	case at[0] > handled:
		p.change(func() {
			if p.seen == p.seeks { // otherwise there was a seek meanwhile
				p.seeks++
				p.handled, p.epoch, p.committed, p.claimed = at[0], epoch, at[0], 0
			}
		})
		return true
	}
	return astray || behind
}
