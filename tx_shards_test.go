package weir_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/pgtest"
)

// A PostgreSQL that has a log and programs that publish with SQL becomes shard 0. What they
// published before and was not moved is there once, they go on publishing, and what is not done on
// a shard is refused.
func TestAPostgresInUseBecomesAShardAndItsProgramsGoOnPublishing(t *testing.T) {
	url := pgtest.URL(t)
	w, err := weir.Open(t.Context(), url, weir.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	program, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close(context.Background())
	run := func(sql string) error {
		_, err := program.Exec(t.Context(), sql)
		return err
	}
	older, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer older.Close(context.Background())
	if _, err := older.Exec(t.Context(), `BEGIN; SELECT pg_current_xact_id()`); err != nil {
		t.Fatal(err)
	}
	if err := run(`BEGIN; SELECT weir.publish('orders', 'k', '0', '{"a": "b"}'); SELECT weir.publish('orders', 'k', '1'); COMMIT`); err != nil {
		t.Fatal(err)
	}
	if _, err := older.Exec(t.Context(), `SELECT weir.publish('orders', 'k', '2'); COMMIT`); err != nil { // it began first, and publishes last
		t.Fatal(err)
	}

	w, err = weir.Open(t.Context(), "shard:"+strings.ReplaceAll(url, ",", ",,")+",sqlite:"+filepath.Join(t.TempDir(), "b.db"), weir.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(context.Background())
	if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "bills", Partitions: 4}); err != nil {
		t.Fatal(err)
	}
	seen := make(chan weir.Event, 100)
	_, err = w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders", "bills"}, Handler: func(_ context.Context, e weir.Event) error {
		seen <- e
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	next := func() weir.Event {
		t.Helper()
		select {
		case e := <-seen:
			return e
		case <-time.After(time.Minute):
			t.Fatal("no event in a minute")
			return weir.Event{}
		}
	}
	first, second, third := next(), next(), next()
	if string(first.Value)+string(second.Value)+string(third.Value) != "012" || len(first.Headers) != 1 || string(first.Headers[0].Value) != "b" {
		t.Errorf("%+v, %+v, %+v", first, second, third)
	}
	var want []string
	for i := range 10 { // partitions on both shards
		want = append(want, fmt.Sprint(i))
		if err := run(fmt.Sprintf(`SELECT weir.publish('bills', 'key %d', '%d')`, i, i)); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for range want {
		got = append(got, string(next().Value))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, call := range []string{`SELECT weir.enqueue('mail', 'hello')`, `SELECT weir.commit_offset('other', 'orders', 0, 1)`} {
		if err := run(call); err == nil || !strings.Contains(err.Error(), "one shard of several") {
			t.Errorf("%s: %v", call, err)
		}
	}
	if len(seen) > 0 {
		t.Errorf("also delivered: %+v", <-seen)
	}
}

// A process that is started on one shard by itself, by mistake, is refused, and installs nothing
// there: the functions of a store by itself would take events that nobody moves.
func TestAShardOpenedByItselfIsNotTouched(t *testing.T) {
	url := pgtest.URL(t)
	set := "shard:" + strings.ReplaceAll(url, ",", ",,") + ",sqlite:" + filepath.Join(t.TempDir(), "b.db")
	w, err := weir.Open(t.Context(), set, weir.Options{Logger: silent})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w, err := weir.Open(t.Context(), url, weir.Options{Logger: silent}); err == nil {
		_ = w.Close(t.Context())
		t.Error("a shard was opened by itself")
	}
	if found := pgtest.Value(t, url, `SELECT to_regclass('weir.inbox') IS NULL AND to_regclass('weir.topic') IS NULL`); found != "true" && found != "t" {
		t.Errorf("the tables of door/sqlfn are not missing: %s", found)
	}
}

// setOf opens stores of these kinds as one, with the topic orders in four partitions.
func setOf(t *testing.T, opts weir.Options, kinds ...string) (w *weir.Log, urls []string) {
	t.Helper()
	var list []string
	for _, kind := range kinds {
		url := everystore.URL(t, kind)
		urls, list = append(urls, url), append(list, strings.ReplaceAll(url, ",", ",,"))
	}
	opts.Logger = silent
	w, err := weir.Open(t.Context(), "shard:"+strings.Join(list, ","), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close(context.Background()) })
	ensure(t, w, "orders", 4)
	return w, urls
}

// consumed consumes n events of orders, and returns the values of each key, in order.
func consumed(t *testing.T, w *weir.Log, n int) map[string][]string {
	t.Helper()
	events := make(chan weir.Event)
	c, err := w.Consume(t.Context(), weir.Subscription{Group: t.Name(), Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		select {
		case events <- e:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for range n {
		select {
		case e := <-events:
			value := string(e.Value)
			for _, h := range e.Headers {
				value += " " + h.Key + "=" + string(h.Value)
			}
			got[string(e.Key)] = append(got[string(e.Key)], value)
		case <-time.After(time.Minute):
			t.Fatalf("only %v after a minute", got)
		}
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return got
}

// A transaction publishes in the database of any shard, to partitions on all of them: exactly if it
// commits.
func TestPublishTxInTheDatabaseOfAnyShard(t *testing.T) {
	for _, c := range []struct {
		kinds []string
		pgx   bool
	}{
		{[]string{"postgres", "postgres"}, true}, {[]string{"postgres", "postgres"}, false}, {[]string{"postgres", "sqlite"}, true}, {[]string{"mysql", "sqlite"}, false}, {[]string{"sqlite", "sqlite"}, false},
	} {
		t.Run(fmt.Sprint(c.kinds, " pgx ", c.pgx), func(t *testing.T) {
			w, urls := setOf(t, weir.Options{}, c.kinds...)
			want, published := map[string][]string{}, 0
			for n, kind := range c.kinds {
				if c.pgx && kind != "postgres" {
					continue
				}
				// within runs do in a transaction on the shard.
				within := func(commit bool, do func(publish func(...weir.Event) error)) {
					t.Helper()
					if c.pgx {
						conn, err := pgx.Connect(t.Context(), urls[n])
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close(context.Background())
						tx, err := conn.Begin(t.Context())
						if err != nil {
							t.Fatal(err)
						}
						do(func(events ...weir.Event) error { return w.PublishTx(t.Context(), tx, events...) })
						if end := map[bool]func(context.Context) error{true: tx.Commit, false: tx.Rollback}[commit]; end(t.Context()) != nil {
							t.Fatal("the transaction did not end")
						}
						return
					}
					db := program(t, urls[n])
					tx, err := db.Begin()
					if err != nil {
						t.Fatal(err)
					}
					do(func(events ...weir.Event) error { return w.PublishSQLTx(t.Context(), tx, events...) })
					if end := map[bool]func() error{true: tx.Commit, false: tx.Rollback}[commit]; end() != nil {
						t.Fatal("the transaction did not end")
					}
				}
				event := func(key, value string, headers ...weir.Header) weir.Event {
					return weir.Event{Topic: "orders", Key: []byte(key), Value: []byte(value), Headers: headers}
				}
				for round, commit := range []bool{true, false, true} {
					within(commit, func(publish func(...weir.Event) error) {
						var alike, different []weir.Event
						for i := range 8 {
							key, value := fmt.Sprintf("shard %d key %d", n, i), fmt.Sprintf("round %d", round)
							alike, different = append(alike, event(key, value)), append(different, event(key, value, weir.Header{Key: "i", Value: []byte(fmt.Sprint(i))}))
							if commit {
								want[key] = append(want[key], value, fmt.Sprintf("%s i=%d", value, i))
								published += 2
							}
						}
						for _, events := range [][]weir.Event{alike, different} {
							if err := publish(events...); err != nil {
								t.Fatal(err)
							}
						}
					})
				}
				within(false, func(publish func(...weir.Event) error) {
					if err := publish(weir.Event{Topic: "nothing", Value: []byte("v")}); !errors.Is(err, weir.ErrUnknownTopic) {
						t.Errorf("an unknown topic: %v", err)
					}
					if err := publish(event("k", strings.Repeat("x", 2<<20))); !errors.Is(err, weir.ErrTooLarge) {
						t.Errorf("a large event: %v", err)
					}
				})
			}
			if got := consumed(t, w, published); !maps.EqualFunc(got, want, slices.Equal) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

func TestAPartitionerChoosesInTransactionsOnShards(t *testing.T) {
	for _, kinds := range [][]string{{"postgres", "postgres"}, {"sqlite", "sqlite"}} {
		t.Run(kinds[0], func(t *testing.T) {
			w, urls := setOf(t, weir.Options{Partitioner: func(*weir.Event, int) int32 { return 3 }}, kinds...)
			tx, err := program(t, urls[1]).Begin()
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.PublishSQLTx(t.Context(), tx, weir.Event{Topic: "orders", Key: []byte("k"), Value: []byte("v")}), tx.Commit()); err != nil {
				t.Fatal(err)
			}
			consumed(t, w, 1)
			bounds, err := w.Bounds(t.Context(), "orders")
			if err != nil || bounds[3].Next != 1 {
				t.Errorf("%v, %v, want the event in partition 3", bounds, err)
			}
		})
	}
}

func TestPublishSQLTxRefusesWhenItCannotKnowTheDatabase(t *testing.T) {
	w, _ := setOf(t, weir.Options{}, "postgres", "sqlite")
	if err := w.PublishSQLTx(t.Context(), nil, weir.Event{Topic: "orders", Value: []byte("v")}); err == nil || !strings.Contains(err.Error(), "use PublishTx with pgx") {
		t.Error(err)
	}
	w, _ = setOf(t, weir.Options{}, "sqlite", "sqlite")
	if err := w.PublishTx(t.Context(), nil, weir.Event{Topic: "orders", Value: []byte("v")}); !errors.Is(err, weir.ErrNotPostgres) {
		t.Error(err)
	}
}

// A login that may publish, and nothing else, publishes in the database of a shard without opening
// the log.
func TestATxPublisherOnAShardNeedsNoMoreThanWeirProducer(t *testing.T) {
	w, urls := setOf(t, weir.Options{}, "postgres", "postgres")
	role := "weir_test_" + strings.ToLower(rand.Text()[:12])
	pgtest.Exec(t, urls[1], `CREATE ROLE `+role+` LOGIN PASSWORD 'plain'; GRANT weir_producer TO `+role)
	t.Cleanup(func() { pgtest.Exec(t, urls[1], `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	u, err := url.Parse(urls[1])
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "plain")
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var to weir.TxPublisher
	alike := events("orders", "k=1", "k=2")
	different := events("orders", "k=3", "j=4")
	different[0].Headers = []weir.Header{{Key: "a", Value: []byte("b")}}
	for _, some := range [][]weir.Event{alike, different} {
		if err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { return to.PublishTx(t.Context(), tx, some...) }); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string][]string{"k": {"1", "2", "3 a=b"}, "j": {"4"}}
	if got := consumed(t, w, 4); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := conn.Exec(t.Context(), "SELECT * FROM weir.weir_inbox"); err == nil {
		t.Error("it may read the inbox")
	}
}
