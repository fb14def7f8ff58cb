package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// inTx runs do in a transaction of each kind, which is committed if do says so.
func inTx(t *testing.T, w *weir.Log, url string, do func(kind string, publish func(...weir.Event) error) (commit bool)) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	end := tx.Rollback
	if do("pgx", func(e ...weir.Event) error { return w.PublishTx(t.Context(), tx, e...) }) {
		end = tx.Commit
	}
	if err := end(t.Context()); err != nil {
		t.Fatal(err)
	}

	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	stx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	send := stx.Rollback
	if do("sql", func(e ...weir.Event) error { return w.PublishSQLTx(t.Context(), stx, e...) }) {
		send = stx.Commit
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
}

func TestEventsOfATransactionExistExactlyIfItCommits(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	for _, commit := range []bool{false, true} {
		inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
			if err := publish(events("orders", fmt.Sprintf("%s=%v 1", kind, commit), fmt.Sprintf("%s=%v 2", kind, commit))...); err != nil {
				t.Fatal(err)
			}
			if err := publish(events("orders", fmt.Sprintf("%s=%v 3", kind, commit))...); err != nil {
				t.Fatal(err)
			}
			return commit
		})
	}
	publish(t, w, "orders", "end")
	if v := values(got.wait(t, 7)); !slices.Equal(slices.DeleteFunc(v, func(v string) bool { return v == "end" }),
		[]string{"true 1", "true 2", "true 3", "true 1", "true 2", "true 3"}) {
		t.Errorf("got %q", v)
	}
}

func TestASavepointTakesItsEventsBack(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if err := w.PublishTx(t.Context(), tx, events("orders", "kept")...); err != nil {
			return err
		}
		taken := errors.New("taken back")
		if err := pgx.BeginFunc(t.Context(), tx, func(inner pgx.Tx) error {
			return errors.Join(w.PublishTx(t.Context(), inner, events("orders", "taken back")...), taken)
		}); !errors.Is(err, taken) {
			return err
		}
		return w.PublishTx(t.Context(), tx, events("orders", "kept, too")...)
	}); err != nil {
		t.Fatal(err)
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	if v := values(got.wait(t, 2)); !slices.Equal(v, []string{"kept", "kept, too"}) {
		t.Errorf("got %q", v)
	}
}

func TestEventsOfATransactionArriveAsTheyWere(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "a", 5)
	ensure(t, w, "b", 1)
	sent := []weir.Event{
		{Topic: "a", Key: []byte(`k"\,{}`), Value: []byte{0, 255, 'x'}},
		{Topic: "b", Value: []byte{}},
		{Topic: "a", Key: []byte("gone")},
		{Topic: "a", Key: []byte("h"), Value: []byte("v"), Headers: []weir.Header{{Key: "one", Value: []byte(`"☂"`)}, {Key: "null"}}},
	}
	for i := range 20 {
		sent = append(sent, events("a", fmt.Sprintf("key%d=%d", i, i))...)
		sent = append(sent, weir.Event{Topic: "a", Key: []byte{byte(i), 0, 0xff, '\\'}, Value: []byte("a key that is no text")})
	}
	inTx(t, w, s.url, func(_ string, publish func(...weir.Event) error) bool {
		if err := publish(sent...); err != nil {
			t.Fatal(err)
		}
		return true
	})
	direct, err := w.Publish(t.Context(), sent[4:]...)
	if err != nil {
		t.Fatal(err)
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"a", "b"}, Handler: got.note})
	times := map[string]int{}
	for _, e := range got.wait(t, 3*len(sent)-4) {
		times[show(e)]++
		for i, d := range sent[4:] {
			if string(e.Key) == string(d.Key) && e.Partition != direct[i].Partition {
				t.Errorf("key %s is in partition %d, Publish brings it to %d", e.Key, e.Partition, direct[i].Partition)
			}
		}
	}
	for i, e := range sent {
		want := 2
		if i >= 4 {
			want = 3 // Publish published it as well
		}
		if times[show(e)] != want {
			t.Errorf("%s came %d times, want %d", show(e), times[show(e)], want)
		}
	}
}

// show is an event without its place.
func show(e weir.Event) string {
	header := func(h weir.Header) string { return fmt.Sprintf("%s=%q(%v)", h.Key, h.Value, h.Value == nil) }
	var headers []string
	for _, h := range e.Headers {
		headers = append(headers, header(h))
	}
	slices.Sort(headers)
	return fmt.Sprintf("%s %q(%v) %q(%v) %v", e.Topic, e.Key, e.Key == nil, e.Value, e.Value == nil, headers)
}

func TestWhatATransactionCannotPublishIsRefused(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	invalid := new(*weir.InvalidError)
	for name, c := range map[string]struct {
		event weir.Event
		is    func(error) bool
	}{
		"an unknown topic": {weir.Event{Topic: "missing", Value: []byte("v")}, func(err error) bool { return errors.Is(err, weir.ErrUnknownTopic) }},
		"too large":        {weir.Event{Topic: "orders", Value: make([]byte, 2<<20)}, func(err error) bool { return errors.Is(err, weir.ErrTooLarge) }},
		"a header that is no text": {weir.Event{Topic: "orders", Value: []byte("v"), Headers: []weir.Header{{Key: "a", Value: []byte{0xff}}}},
			func(err error) bool { return errors.As(err, invalid) }},
		"neither key nor value": {weir.Event{Topic: "orders"}, func(err error) bool { return errors.As(err, invalid) }},
		"a header twice": {weir.Event{Topic: "orders", Value: []byte("v"), Headers: []weir.Header{{Key: "a"}, {Key: "a"}}},
			func(err error) bool { return errors.As(err, invalid) }},
	} {
		inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
			if err := publish(append(events("orders", "good"), c.event)...); err == nil || !c.is(err) {
				t.Errorf("%s, with %s: %v", name, kind, err)
			}
			return false
		})
	}
	for _, kind := range []string{"memory", "sqlite"} {
		w := newSite(t, kind).open(t)
		if err := w.PublishTx(t.Context(), nil, events("orders", "v")...); !errors.Is(err, weir.ErrNotPostgres) {
			t.Errorf("on %s: %v, want ErrNotPostgres", kind, err)
		}
	}
	other := pgtest.URL(t) // a database without a log
	conn, err := pgx.Connect(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := w.PublishTx(t.Context(), conn, events("orders", "v")...); err == nil || !strings.Contains(err.Error(), "not on the database that holds the log") {
		t.Errorf("on another database: %v", err)
	}
}

// A handler that commits in its own transaction writes each event once, although it fails before and after its commits, its answers are lost,
// and other consumers come and go.
func TestCommitTxWritesExactlyOnce(t *testing.T) {
	s := newSite(t, "postgres")
	w, other := s.open(t), s.open(t)
	pgtest.Exec(t, s.url, `CREATE TABLE bills (value text NOT NULL)`) // no unique key: it would hide what is written twice
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ensure(t, w, "orders", 3)
	const n = 60
	var mu sync.Mutex
	calls := 0
	trouble := func(every int) error {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls%every == 0 {
			return errors.New("trouble")
		}
		return nil
	}
	var done seen
	sub := weir.Subscription{Group: "billing", Topics: []string{"orders"}, Retry: quick(50), Handler: func(ctx context.Context, e weir.Event) error {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1)`, string(e.Value)); err != nil {
				return err
			}
			if err := e.CommitTx(ctx, tx); err != nil {
				return err
			}
			return trouble(3) // it is rolled back
		})
		if err == nil {
			err = trouble(5) // it was committed, and the handler fails
		}
		_ = done.note(ctx, e)
		return err
	}}
	a := consume(t, w, sub)
	for i := range n {
		publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
		if i == n/2 {
			consume(t, other, sub)
		}
	}
	done.wait(t, n/2)
	closeConsumer(t, a)
	eventually(t, "all events are billed", func() bool {
		return pgtest.Value(t, s.url, `SELECT count(DISTINCT value) FROM bills`) == fmt.Sprint(n)
	})
	committed(t, w, "billing")
	if rows := pgtest.Value(t, s.url, `SELECT count(*) FROM bills`); rows != fmt.Sprint(n) {
		t.Errorf("%s rows for %d events", rows, n)
	}
	if topics, err := w.Topics(t.Context()); err != nil || len(topics) != 1 {
		t.Errorf("there are dead letters: %v, %v", topics, err)
	}
}

func TestCommitTxOfABatchWithDatabaseSQL(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pgtest.Exec(t, s.url, `CREATE TABLE bills (value text NOT NULL)`)
	db, err := sql.Open("pgx", s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 25)...)
	consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, MaxBatch: 10, BatchHandler: func(ctx context.Context, events []weir.Event) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		for _, e := range events {
			if _, err := tx.ExecContext(ctx, `INSERT INTO bills VALUES ($1)`, string(e.Value)); err != nil {
				return err
			}
		}
		if err := events[len(events)-1].CommitSQLTx(ctx, tx); err != nil {
			return err
		}
		return tx.Commit()
	}})
	committed(t, w, "billing")
	if rows := pgtest.Value(t, s.url, `SELECT count(*) FROM bills`); rows != "25" {
		t.Errorf("%s rows for 25 events", rows)
	}
}

func TestCommitTxOutsideItsHandlerIsRefused(t *testing.T) {
	if err := (weir.Event{}).CommitTx(t.Context(), nil); err == nil {
		t.Error("an event that was not delivered: no error")
	}
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "v")
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	e := got.wait(t, 1)[0]
	committed(t, w, "g")
	if err := e.CommitTx(t.Context(), nil); !errors.Is(err, weir.ErrNotAssigned) {
		t.Errorf("after its handler returned: %v, want ErrNotAssigned", err)
	}
	m := newSite(t, "memory").open(t)
	ensure(t, m, "orders", 1)
	publish(t, m, "orders", "v")
	answers := make(chan error, 1)
	consume(t, m, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		answers <- e.CommitTx(ctx, nil)
		return nil
	}})
	if err := next(t, answers); !errors.Is(err, weir.ErrNotPostgres) {
		t.Errorf("on memory: %v, want ErrNotPostgres", err)
	}
}

// An hour is long for a test; what matters is that the transaction is still open.
func TestATransactionLeftOpenHoldsUpNobody(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.PublishTx(t.Context(), tx, events("orders", "late")...); err != nil {
		t.Fatal(err)
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	publish(t, w, "orders", "direct")
	inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
		if err := publish(events("orders", kind)...); err != nil {
			t.Fatal(err)
		}
		return true
	})
	got.wait(t, 3)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if v := values(got.wait(t, 4)); v[3] != "late" {
		t.Errorf("got %q", v)
	}
	t.Logf("delivered %v after its commit", time.Since(began))
}

// The examples that need a PostgreSQL are only compiled by go test. Here they run.
func TestExamplesWithTransactionsWork(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	pgtest.Exec(t, s.url, `CREATE TABLE orders (id int, what text); CREATE TABLE bills (what text)`)
	conn, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	db, err := sql.Open("pgx", s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := errors.Join(publishWithOrder(t.Context(), w, conn), publishWithOrderSQL(t.Context(), w, db)); err != nil {
		t.Fatal(err)
	}
	consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: billExactlyOnce(s.url)})
	eventually(t, "both orders are billed", func() bool {
		return pgtest.Value(t, s.url, `SELECT coalesce(string_agg(what, ', ' ORDER BY what), '') FROM bills`) == "a kettle, two teapots"
	})
}
