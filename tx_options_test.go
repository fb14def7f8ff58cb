package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// Options count for what is published in a transaction as they do elsewhere.
func TestThePartitionerOfTheCallerCountsInATransaction(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t, weir.Options{Poll: 10 * time.Millisecond, Partitioner: func(e *weir.Event, n int) int32 { return (e.Partition + 1) % int32(n) }})
	ensure(t, w, "orders", 3)
	inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
		for p := range int32(3) { // alone, which has a statement of its own, and together
			if err := publish(weir.Event{Topic: "orders", Value: fmt.Append(nil, p), Partition: p}); err != nil {
				t.Fatal(err)
			}
		}
		if err := publish(weir.Event{Topic: "orders", Value: []byte("0"), Partition: 0}, weir.Event{Topic: "orders", Value: []byte("1"), Partition: 1}); err != nil {
			t.Fatal(err)
		}
		return true
	})
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	for _, e := range got.wait(t, 10) {
		if want := fmt.Sprint((e.Partition + 2) % 3); string(e.Value) != want {
			t.Errorf("an event of Partition %s came from partition %d", e.Value, e.Partition)
		}
	}
	inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
		if err := publish(weir.Event{Topic: "orders", Value: []byte("v"), Partition: -3}); err == nil {
			t.Errorf("%s: an answer of the partitioner that is no partition was taken", kind)
		}
		return false
	})
}

// An event that is published in a transaction carries the caller's span, unless it brings one of
// its own.
func TestATraceGoesThroughATransaction(t *testing.T) {
	s := newSite(t, "postgres")
	tracer := &spans{}
	w := s.open(t, weir.Options{Tracer: tracer, Poll: 10 * time.Millisecond})
	ensure(t, w, "orders", 1)
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	ctx, end := tracer.Start(t.Context(), "request", eventlog.SpanInfo{})
	own := []weir.Header{{Key: eventlog.TraceParent, Value: []byte("own")}}
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		return errors.Join(
			w.PublishTx(ctx, tx, events("orders", "alone")...),
			w.PublishTx(ctx, tx, weir.Event{Topic: "orders", Value: []byte("one of two")}, weir.Event{Topic: "orders", Value: []byte("own"), Headers: own}))
	}); err != nil {
		t.Fatal(err)
	}
	end(nil)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	for i, want := range []string{"request", "request", ""} {
		e := got.wait(t, 3)[i]
		parent, _ := e.Header(eventlog.TraceParent)
		if root := tracer.root(string(parent)); root != want || want == "" && string(parent) != "own" {
			t.Errorf("event %q carries the span %q, which leads to %q", e.Value, parent, root)
		}
	}
}

// root is the name of the span that a span's parents lead to; none for one that is not ours.
func (s *spans) root(traceparent string) (name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _ := strconv.Atoi(traceparent)
	for id > 0 {
		name, id = s.all[id-1].name, s.all[id-1].parent
	}
	return name
}

// As TestExamplesWithTransactionsWork, for the one that commits with database/sql.
func TestTheExampleOfCommitSQLTxWorks(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	pgtest.Exec(t, s.url, `CREATE TABLE bills (what text)`)
	db, err := sql.Open("pgx", s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	publish(t, w, "orders", "two teapots", "a kettle")
	c := consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: billExactlyOnceSQL(db)})
	committed(t, w, "billing")
	closeConsumer(t, c)
	if bills := pgtest.Value(t, s.url, `SELECT string_agg(what, ', ' ORDER BY what) FROM bills`); bills != "a kettle, two teapots" {
		t.Errorf("billed: %s", bills)
	}
}

// In a session with array_nulls = off the word NULL in an array is a text. What has no key, or no
// value, has none there either.
func TestNothingBecomesTheTextNULLInATransaction(t *testing.T) {
	s := newSite(t, "postgres")
	pgtest.Exec(t, s.url, `ALTER DATABASE `+pgtest.Value(t, s.url, `SELECT current_database()`)+` SET array_nulls = off`)
	w := s.open(t)
	choosy := s.open(t, weir.Options{Partitioner: func(*weir.Event, int) int32 { return 0 }})
	ensure(t, w, "orders", 1)
	sent := []weir.Event{
		{Topic: "orders", Value: []byte("NULL")}, // alone, which has a statement of its own
		{Topic: "orders", Key: []byte("NULL")},   // a tombstone
		{Topic: "orders", Value: []byte{}, Headers: []weir.Header{{Key: "NULL"}}},
	}
	for _, from := range []*weir.Log{w, choosy} {
		inTx(t, from, s.url, func(kind string, publish func(...weir.Event) error) bool {
			if err := errors.Join(publish(sent[0]), publish(sent[1:]...)); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			return true
		})
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	for i, e := range got.wait(t, 4*len(sent)) {
		if want := show(sent[i%len(sent)]); show(e) != want {
			t.Errorf("event %d is %s, want %s", i, show(e), want)
		}
	}

	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	messages := []weir.NewMessage{{Value: []byte("a")}, {Value: []byte("b")}, {Value: []byte("c"), Headers: []weir.Header{{Key: "h"}}}}
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return errors.Join(w.EnqueueTx(t.Context(), tx, "mail", messages[0]), w.EnqueueTx(t.Context(), tx, "mail", messages[1:]...))
	}); err != nil {
		t.Fatal(err)
	}
	jobs := worked(t, w, "mail")
	for range messages {
		if j := nextJob(t, jobs); j.Key != nil {
			t.Errorf("message %s has the key %q, want none", j.Value, j.Key)
		}
	}
}
