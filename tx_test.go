package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
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
	"github.com/weir-log/weir/internal/seed"
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
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "states", Partitions: 1, Config: map[string]string{"cleanup.policy": "compact"}}); err != nil {
		t.Fatal(err)
	}
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
		"no key in a compacted topic": {weir.Event{Topic: "states", Value: []byte("v")},
			func(err error) bool { return strings.Contains(err.Error(), "is compacted") }},
		"a header twice": {weir.Event{Topic: "orders", Value: []byte("v"), Headers: []weir.Header{{Key: "a"}, {Key: "a"}}},
			func(err error) bool { return errors.As(err, invalid) }},
		"a topic with a NUL":     {weir.Event{Topic: "or\x00ders", Value: []byte("v")}, func(err error) bool { return errors.As(err, invalid) }},
		"a topic that cannot be": {weir.Event{Topic: "or ders", Value: []byte("v")}, func(err error) bool { return errors.As(err, invalid) }},
	} {
		inTx(t, w, s.url, func(kind string, publish func(...weir.Event) error) bool {
			err := publish(append(events("orders", "good"), c.event)...)
			if err == nil || !c.is(err) {
				t.Errorf("%s, with %s: %v", name, kind, err)
			}
			if errors.As(err, invalid) && !strings.Contains(err.Error(), "event 1: ") {
				t.Errorf("%s, with %s: the error does not tell which event: %v", name, kind, err)
			}
			if errors.Is(err, weir.ErrUnknownTopic) && !strings.Contains(err.Error(), "weir topic create") {
				t.Errorf("%s, with %s: the error does not tell what to do: %v", name, kind, err)
			}
			return false
		})
	}
	choosy := s.open(t, weir.Options{Partitioner: weir.ByPartitionField})
	for _, number := range []int32{-1, 1, 3} {
		inTx(t, choosy, s.url, func(kind string, publish func(...weir.Event) error) bool {
			err := publish(append(events("orders", "good"), weir.Event{Topic: "orders", Partition: number, Value: []byte("v")})...)
			if !errors.As(err, invalid) || !strings.Contains(err.Error(), fmt.Sprint("event 1: invalid partition \"", number)) {
				t.Errorf("partition %d of 1, with %s: %v", number, kind, err)
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

// A handler that commits in its own transaction writes each event once, although it fails before
// and after its commits, its answers are lost, and other consumers come and go.
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

// bills is a table that a handler writes in the transaction that commits its event, and has no
// unique key: it would hide what is written twice.
func bills(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	pgtest.Exec(t, url, `CREATE TABLE bills (value text NOT NULL)`)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// bill writes an event to the bills and commits it, unless do gives an error.
func bill(ctx context.Context, pool *pgxpool.Pool, e weir.Event, do func() error) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1)`, string(e.Value)); err != nil {
			return err
		}
		if err := e.CommitTx(ctx, tx); err != nil {
			return err
		}
		return do()
	})
}

func billed(t *testing.T, url string) string {
	t.Helper()
	return pgtest.Value(t, url, `SELECT coalesce(string_agg(value, ' ' ORDER BY value), '') FROM bills`)
}

// What a handler rolls back and is content with is handled: the events behind it come, and it is
// committed as well.
func TestARollbackAndNilSkipsTheEvent(t *testing.T) {
	for _, c := range []struct{ name, events, want string }{
		{"among others", "a bad c d", "a c d"},
		{"several", "a bad bad bad c bad d", "a c d"},
		{"the last", "a c bad", "a c"},
		{"the first", "bad a", "a"},
		{"alone", "bad", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, "postgres")
			w := s.open(t)
			pool := bills(t, s.url)
			ensure(t, w, "orders", 1)
			publish(t, w, "orders", strings.Fields(c.events)...)
			skip := errors.New("skip it")
			consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
				err := bill(ctx, pool, e, func() error {
					if string(e.Value) == "bad" {
						return skip
					}
					return nil
				})
				switch {
				case errors.Is(err, skip):
					return nil
				case errors.Is(err, weir.ErrHandled): // nobody handled anything before us, so this is never said
					t.Errorf("%s: %v", e.Value, err)
				}
				return err
			}})
			committed(t, w, "g")
			if got := billed(t, s.url); got != c.want {
				t.Errorf("billed %q, want %q", got, c.want)
			}
			g, err := w.Group(t.Context(), "g")
			if err != nil || g.Offsets[0].Committed != int64(len(strings.Fields(c.events))) {
				t.Errorf("%v, %v", g.Offsets, err)
			}
			if at := pgtest.Value(t, s.url, `SELECT weir.position('g', 'orders', 0)`); at != fmt.Sprint(len(strings.Fields(c.events))) {
				t.Errorf("in SQL the group is at %s", at)
			}
		})
	}
}

// Where others were before a transaction, its consumer goes on behind them, also when the handler
// is content with that. It brings nobody back.
func TestAfterErrHandledTheConsumerGoesOnBehindTheOthers(t *testing.T) {
	for _, answer := range []string{"nil", "the error"} {
		s := newSite(t, "postgres")
		w := s.open(t)
		pool := bills(t, s.url)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 5)...)
		refused := make(chan error, 100)
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, CommitEvery: time.Millisecond, Handler: func(ctx context.Context, e weir.Event) error {
			if e.Offset == 0 {
				if _, err := pool.Exec(ctx, `SELECT weir.commit_offset('g', 'orders', 0, 3)`); err != nil {
					return err
				}
			}
			err := bill(ctx, pool, e, func() error { return nil })
			if errors.Is(err, weir.ErrHandled) {
				refused <- err
				if answer == "nil" {
					return nil
				}
			}
			return err
		}})
		next(t, refused)
		committed(t, w, "g")
		if got := billed(t, s.url); got != "3 4" || len(refused) > 0 {
			t.Errorf("with %s: billed %q, want 3 and 4; refused %d times more", answer, got, len(refused))
		}
	}
}

// What SQL sessions committed counts from the first moment on, while nobody has carried it to where
// consumers look yet.
func TestAConsumerGoesOnBehindWhatSQLCommitted(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 5)...)
	closeLog(t, w)
	for i := range 10 {
		group := fmt.Sprint("g", i)
		pgtest.Exec(t, s.url, fmt.Sprintf(`SELECT weir.commit_offset('%s', 'orders', 0, 3)`, group))
		w := s.open(t)
		var got seen
		consume(t, w, weir.Subscription{Group: group, Topics: []string{"orders"}, Handler: got.note})
		committed(t, w, group)
		if v := values(got.all()); !slices.Equal(v, []string{"3", "4"}) {
			t.Errorf("got %q", v)
		}
		closeLog(t, w)
	}
}

// A handler that went elsewhere with Seek does not bring its group back with a commit.
func TestSeekIsNotUndoneByTheTransactionOfItsHandler(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "0", "1", "2")
	ready, commits := make(chan *weir.Consumer, 1), make(chan error, 1)
	var got seen
	sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(-1)}
	sub.Handler = func(ctx context.Context, e weir.Event) error {
		_ = got.note(ctx, e)
		if e.Offset == 2 && len(commits) == 0 {
			if err := (<-ready).Seek(ctx, weir.AtOffset(1)); err != nil {
				t.Error(err)
			}
			commits <- bill(ctx, pool, e, func() error { return nil })
			return nil
		}
		return bill(ctx, pool, e, func() error { return nil })
	}
	ready <- consume(t, w, sub)
	if v := values(got.wait(t, 5)); !slices.Equal(v, []string{"0", "1", "2", "1", "2"}) {
		t.Errorf("got %q", v)
	}
	committed(t, w, "g")
	if err := <-commits; !errors.Is(err, weir.ErrNotAssigned) || billed(t, s.url) != "0 1 1 2" {
		t.Errorf("billed %q; the commit after the seek: %v", billed(t, s.url), err)
	}
}

// Whatever handlers commit, skip, and fail at, in whichever order, and whoever else takes over:
// what commits is written once, and all is handled in the end. Handlers take ErrHandled for a
// reason to be content.
func TestSkipsAmongCommitsWriteExactlyOnce(t *testing.T) {
	seed := seed.New(t)
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 1))
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return r.IntN(100) < percent
	}
	s := newSite(t, "postgres")
	w, other := s.open(t), s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 3)
	skip, fail := errors.New("skip it"), errors.New("fail")
	sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(-1), CommitEvery: time.Millisecond, Handler: func(ctx context.Context, e weir.Event) error {
		if strings.HasPrefix(string(e.Value), "plain") {
			return nil
		}
		err := bill(ctx, pool, e, func() error {
			switch {
			case chance(20):
				return fail
			case strings.HasPrefix(string(e.Value), "skip"):
				return skip
			}
			return nil
		})
		switch {
		case errors.Is(err, skip), errors.Is(err, weir.ErrHandled):
			return nil
		case err == nil && chance(10):
			return fail // it was committed
		}
		return err
	}}
	var want []string
	consumers := []*weir.Consumer{consume(t, w, sub)}
	for i := range 300 {
		kind := "bill"
		switch {
		case chance(30):
			kind = "skip"
		case chance(10):
			kind = "plain"
		}
		value := fmt.Sprintf("%s%03d", kind, i)
		if kind == "bill" {
			want = append(want, value)
		}
		publish(t, w, "orders", fmt.Sprintf("key%d=%s", i, value))
		if i%60 == 30 { // one comes, and one goes
			consumers = append(consumers, consume(t, []*weir.Log{w, other}[i/60%2], sub))
			if len(consumers) > 2 {
				closeConsumer(t, consumers[0])
				consumers = consumers[1:]
			}
		}
	}
	committed(t, w, "g")
	slices.Sort(want)
	if got := billed(t, s.url); got != strings.Join(want, " ") {
		t.Errorf("billed %s\nwant   %s", got, strings.Join(want, " "))
	}
}

// Events that a handler makes of others are published exactly once and in their order, although it
// fails before and after its commits, rolls back, and is moved.
func TestConsumeTransformProduceIsOneTransaction(t *testing.T) {
	s := newSite(t, "postgres")
	w, other := s.open(t), s.open(t)
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ensure(t, w, "orders", 2)
	ensure(t, w, "invoices", 1)
	const keys, each = 4, 20
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
	skip := errors.New("there is no invoice for it")
	var got, done seen
	consume(t, w, weir.Subscription{Group: "invoices", Topics: []string{"invoices"}, Handler: got.note})
	sub := func(w *weir.Log) weir.Subscription {
		return weir.Subscription{Group: "invoicing", Topics: []string{"orders"}, Retry: quick(-1), Handler: func(ctx context.Context, e weir.Event) error {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if err := w.PublishTx(ctx, tx, weir.Event{Topic: "invoices", Key: e.Key, Value: e.Value}); err != nil {
					return err
				}
				if err := e.CommitTx(ctx, tx); err != nil {
					return err
				}
				if strings.HasPrefix(string(e.Value), "skip") {
					return skip
				}
				return trouble(3) // it is rolled back
			})
			switch {
			case errors.Is(err, skip):
				err = nil
			case err == nil:
				err = trouble(5) // it was committed, and the handler fails
			}
			return errors.Join(err, done.note(ctx, e))
		}}
	}
	a := consume(t, w, sub(w))
	want := map[string][]string{}
	for i := range each {
		for k := range keys {
			key, value := fmt.Sprint("key", k), fmt.Sprint("order", i)
			if (i+k)%5 == 0 {
				value = fmt.Sprint("skip", i)
			} else {
				want[key] = append(want[key], value)
			}
			publish(t, w, "orders", key+"="+value)
		}
		if i == each/2 {
			consume(t, other, sub(other))
		}
	}
	done.wait(t, keys*each/2)
	closeConsumer(t, a)
	committed(t, w, "invoicing")
	publish(t, w, "invoices", "end=end")
	events := got.wait(t, keys*each*4/5+1)
	have := map[string][]string{}
	for _, e := range events {
		if string(e.Key) != "end" {
			have[string(e.Key)] = append(have[string(e.Key)], string(e.Value))
		}
	}
	for key := range want {
		if !slices.Equal(have[key], want[key]) {
			t.Errorf("%s got %q, want %q", key, have[key], want[key])
		}
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
	ensure(t, w, "invoices", 1)
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var got seen
	consume(t, w, weir.Subscription{Group: "invoices", Topics: []string{"invoices"}, Handler: got.note})
	consume(t, w, weir.Subscription{Group: "invoicing", Topics: []string{"orders"}, Handler: invoice(w, pool)})
	if v := values(got.wait(t, 2)); !slices.Equal(v, []string{"invoice for two teapots", "invoice for a kettle"}) {
		t.Errorf("got %q", v)
	}
	consume(t, w, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: billExactlyOnce(s.url)})
	eventually(t, "both orders are billed", func() bool {
		return pgtest.Value(t, s.url, `SELECT coalesce(string_agg(what, ', ' ORDER BY what), '') FROM bills`) == "a kettle, two teapots"
	})
}

// A topic that was deleted and made anew under its name is another: what a handler has of the first
// commits nothing in the second.
func TestCommitTxOfADeletedTopicCommitsNothingInItsNamesake(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "old 0", "old 1", "old 2", "old 3")
	holds, goOn, answers := make(chan struct{}, 1), make(chan struct{}), make(chan error, 100)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		_ = got.note(ctx, e)
		if string(e.Value) != "old 2" {
			return nil
		}
		holds <- struct{}{}
		<-goOn
		err := bill(context.WithoutCancel(ctx), pool, e, func() error { return nil })
		answers <- err
		return err
	}})
	<-holds
	other := s.open(t)
	if err := other.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	ensure(t, other, "orders", 1)
	publish(t, other, "orders", "new 0", "new 1", "new 2", "new 3", "new 4")
	close(goOn)
	if err := next(t, answers); !errors.Is(err, weir.ErrNotAssigned) {
		t.Errorf("the commit for the deleted topic: %v, want ErrNotAssigned", err)
	}
	eventually(t, "the new topic is handled", func() bool { return slices.Contains(values(got.all()), "new 4") })
	if v := values(got.all()); !slices.Equal(v, []string{"old 0", "old 1", "old 2", "new 0", "new 1", "new 2", "new 3", "new 4"}) {
		t.Errorf("handled %q", v)
	}
	if b := billed(t, s.url); b != "" {
		t.Errorf("billed %q", b)
	}
}
