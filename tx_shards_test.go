package weir_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// A PostgreSQL that has a log and programs that publish with SQL becomes shard 0. What they published before and was not moved is there once, they go on publishing, and
// what is not done on a shard is refused.
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
	if err := run(`BEGIN; SELECT weir.publish('orders', 'k', '0', '{"a": "b"}'); SELECT weir.publish('orders', 'k', '1'); COMMIT`); err != nil {
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
	first, second := next(), next()
	if string(first.Value)+string(second.Value) != "01" || len(first.Headers) != 1 || string(first.Headers[0].Value) != "b" {
		t.Errorf("%+v, %+v", first, second)
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

// A process that is started on one shard by itself, by mistake, is refused, and installs nothing there: the functions of a store by itself would take events that nobody moves.
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
