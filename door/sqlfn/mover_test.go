package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// process is what one weir process runs, in this one: a store, a log and a mover.
type process struct {
	t     testing.TB
	store *refusing
	door  *sqlfn.Door
	log   *eventlog.Log
	stop  func()
}

// refusing is a store that counts the entries it refuses because a transaction holds a key.
type refusing struct {
	*postgres.Store
	held atomic.Int64
}

func (r *refusing) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	outcomes, err := r.Store.Commit(ctx, entries)
	for _, o := range outcomes {
		if errors.Is(o.Err, eventlog.ErrHeld) {
			r.held.Add(1)
		}
	}
	return outcomes, err
}

// whileHeld calls do with a context that ends at the second refusal after the call: then the caller
// knows that a transaction holds what it wants to change.
func (p *process) whileHeld(do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	result := make(chan error, 1)
	before := p.store.held.Load()
	go func() { result <- do(ctx) }()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-tick.C:
			if p.store.held.Load() >= before+2 {
				cancel()
			}
		}
	}
}

// start starts a process on a database. It stops when the test ends.
func start(t testing.TB, address string) *process {
	t.Helper()
	return startWith(t, address, sqlfn.Config{})
}

func startWith(t testing.TB, address string, cfg sqlfn.Config) *process {
	t.Helper()
	p := open(t, address)
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { p.log.Run(ctx) })
	all.Go(func() { sqlfn.New(p.log, p.door, cfg).Run(ctx) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		p.store.Close()
	})
	t.Cleanup(p.stop)
	return p
}

// open opens a log that nothing runs yet.
func open(t testing.TB, address string) *process {
	t.Helper()
	opened, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	door, err := sqlfn.Attach(t.Context(), opened)
	if err != nil {
		t.Fatal(err)
	}
	store := &refusing{Store: opened}
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &process{t: t, store: store, door: door, log: log}
}

func (p *process) create(name string, partitions int, config map[string]string) eventlog.Topic {
	p.t.Helper()
	topic, err := p.log.CreateTopic(p.t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions, Config: config, Internal: eventlog.InternalTopic(name)})
	if err != nil {
		p.t.Fatal(err)
	}
	return topic
}

// filled makes a topic of which each partition holds 1000 records, for positions: nobody reads
// them.
func (p *process) filled(name string, partitions int) eventlog.Topic {
	p.t.Helper()
	topic := p.create(name, partitions, nil)
	sqlfn.Fill(p.t, p.log, topic)
	return topic
}

// event is a record as a reader sees it.
type event struct {
	Partition  int32
	Key, Value string
	Headers    string
	Null       bool // no value
	NoKey      bool
	Time       int64
}

// read returns at least n events of a topic, waiting for them. It reads the partitions one after
// the other.
func (p *process) read(name string, n int) []event {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	topic, err := p.log.Topic(ctx, name)
	if err != nil {
		p.t.Fatal(err)
	}
	at := make([]eventlog.Offset, len(topic.Partitions))
	lists := make([][]event, len(topic.Partitions))
	for have := 0; ; {
		spans := make([]eventlog.Span, len(at))
		for i := range at {
			spans[i] = eventlog.Span{Partition: topic.Partitions[i], From: at[i], MaxBytes: 1 << 20}
		}
		for i, s := range p.fetch(ctx, spans) {
			for _, b := range s.Batches {
				for r, err := range batch.Records(b.Bytes, 1<<26) {
					if err != nil {
						p.t.Fatal(err)
					}
					lists[i] = append(lists[i], describe(int32(i), r))
					have++
				}
				at[i] = b.End()
			}
		}
		if have >= n {
			break
		}
		if ctx.Err() != nil {
			p.t.Fatalf("%d events of topic %q came in a minute, and %d are awaited", have, name, n)
		}
	}
	var all []event
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

// fetch reads what is there, and waits a moment where there is nothing.
func (p *process) fetch(ctx context.Context, spans []eventlog.Span) []eventlog.Slice {
	p.t.Helper()
	slices, err := p.log.Fetch(ctx, eventlog.Want{Spans: spans, MinBytes: 1, MaxBytes: 8 << 20, MaxWait: time.Second})
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		p.t.Fatal(err)
	}
	return slices
}

func describe(partition int32, r batch.Record) event {
	e := event{Partition: partition, Key: string(r.Key), Value: string(r.Value), Null: r.Value == nil, NoKey: r.Key == nil, Time: r.Timestamp}
	for _, h := range r.Headers {
		value := "null"
		if h.Value != nil {
			value = string(h.Value)
		}
		e.Headers += fmt.Sprintf("%s=%s;", h.Key, value)
	}
	return e
}

func values(events []event) []string {
	list := make([]string, len(events))
	for i, e := range events {
		list[i] = e.Value
	}
	return list
}

// connect opens a session, closed when the test ends.
func connect(t testing.TB, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// exec runs statements that must succeed.
func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestAnEventExistsIfItsTransactionCommits(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `BEGIN; SELECT weir.publish('orders', 'k', 'rolled back'); ROLLBACK`)
	exec(t, conn, `BEGIN`)
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'first', '{"a": "1", "b": null}')`)
	exec(t, conn, `SAVEPOINT s; SELECT weir.publish('orders', 'k', 'undone'); ROLLBACK TO s`)
	exec(t, conn, `SELECT weir.publish('orders', NULL, '{"n": 1}'::jsonb)`)
	exec(t, conn, `SELECT weir.publish('orders', '', '\x00ff'::bytea); SELECT weir.tombstone('orders', 'k')`)
	exec(t, conn, `COMMIT`)
	got := p.read("orders", 4)
	for i := range got {
		if age := time.Since(time.UnixMilli(got[i].Time)); age < -time.Minute || age > time.Minute {
			t.Errorf("event %d is %v old", i, age)
		}
		got[i].Time = 0
	}
	want := []event{
		{Key: "k", Value: "first", Headers: "a=1;b=null;"},
		{NoKey: true, Value: `{"n": 1}`},
		{Value: "\x00\xff"},
		{Key: "k", Null: true},
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}
