package weir_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// holdMovers keeps every mover from its work: what SQL commits is not carried to the groups' keys
// meanwhile.
func holdMovers(t *testing.T, url string) {
	t.Helper()
	begin(t, url, `SELECT FROM weir.mover FOR UPDATE`)
}

// begin runs a statement in a transaction that stays open until the test ends, or commits.
func begin(t *testing.T, url, statement string) (commit func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `BEGIN; `+statement); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if _, err := conn.Exec(t.Context(), `COMMIT`); err != nil {
			t.Fatal(err)
		}
	}
}

// A consumer begins behind what the transactions of the one before it committed, although no mover
// has carried it.
func TestAConsumerBeginsBehindTransactionsThatNobodyCarried(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	var called seen
	sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		_ = called.note(ctx, e)
		if string(e.Value) == "skip" {
			return nil
		}
		return bill(ctx, pool, e, func() error { return nil })
	}}
	first := consume(t, w, sub)
	holdMovers(t, s.url)
	publish(t, w, "orders", "skip", "b", "c", "d")
	eventually(t, "the first consumer bills all", func() bool { return billed(t, s.url) == "b c d" })
	closeConsumer(t, first)
	publish(t, w, "orders", "e")
	consume(t, w, sub)
	eventually(t, "the second consumer bills the last event", func() bool { return strings.Contains(billed(t, s.url), "e") })
	if got := billed(t, s.url); got != "b c d e" {
		t.Errorf("billed %q, want each once", got)
	}
	if got := values(called.all()); fmt.Sprint(got) != "[skip b c d e]" {
		t.Errorf("handled %q, want each once", got)
	}
}

// A consumer that took over commits what it handled without a transaction while one of its
// predecessor is still open. When that commits, what it did is done: its events are not billed
// again.
func TestACommitDoesNotTakeBackATransactionThatWasOpen(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "skip", "b", "c", "d")
	skipped := make(chan struct{}, 1)
	goOn := make(chan struct{})
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, CommitEvery: time.Millisecond, Handler: func(ctx context.Context, e weir.Event) error {
		switch {
		case string(e.Value) == "skip":
			skipped <- struct{}{}
			<-goOn
			return nil
		case e.Offset == 1:
			<-goOn
		}
		return bill(ctx, pool, e, func() error { return nil })
	}})
	assigned(t, 1, c)
	next(t, skipped)
	zombie := begin(t, s.url, `SELECT weir.commit_offset('g', 'orders', 0, 3, 0); INSERT INTO bills VALUES ('b'), ('c')`)
	goOn <- struct{}{} // the skipped event is handled
	eventually(t, "the skipped event is committed", func() bool {
		g, err := w.Group(t.Context(), "g")
		return err == nil && g.Offsets[0].Committed == 1
	})
	zombie()
	close(goOn)
	eventually(t, "the last event is billed", func() bool { return strings.Contains(billed(t, s.url), "d") })
	if got := billed(t, s.url); got != "b c d" {
		t.Errorf("billed %q, want each once", got)
	}
	committed(t, w, "g")
}

// A group that only SQL sessions know, and that nobody carried yet, is not new.
func TestAConsumerOfASQLGroupBeginsWhereItsSessionsAre(t *testing.T) {
	for _, start := range []struct {
		name string
		at   weir.Position
	}{{"from the first", weir.Earliest}, {"from the end", weir.Latest}} {
		t.Run(start.name, func(t *testing.T) {
			s := newSite(t, "postgres")
			w := s.open(t)
			ensure(t, w, "orders", 1)
			publish(t, w, "orders", numbered("", 5)...)
			holdMovers(t, s.url)
			pgtest.Exec(t, s.url, `SELECT weir.commit_offset('g', 'orders', 0, 3)`)
			var got seen
			consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Start: start.at, Handler: got.note})
			if v := values(got.wait(t, 2)); fmt.Sprint(v) != "[3 4]" {
				t.Errorf("got %q, and the group is at 3", v)
			}
			committed(t, w, "g")
		})
	}
}

// Whoever could not reach the store for longer than its session gets back what nobody took over. It
// goes on where its transactions were.
func TestAConsumerThatWasCutOffGoesOnBehindItsTransactions(t *testing.T) {
	server := pgtest.Start(t)
	s := site{kind: "postgres", url: server.URL()}
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	var called seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: time.Second, Handler: func(ctx context.Context, e weir.Event) error {
		_ = called.note(ctx, e)
		return bill(ctx, pool, e, func() error { return nil })
	}})
	assigned(t, 1, c)
	holdMovers(t, s.url)
	publish(t, w, "orders", "a", "b", "c")
	eventually(t, "the first events are billed", func() bool { return billed(t, s.url) == "a b c" })
	thaw := server.Freeze()
	eventually(t, "the consumer has nothing", func() bool { return len(c.Assigned()) == 0 })
	thaw()
	publish(t, w, "orders", "d")
	eventually(t, "the next event is billed", func() bool { return billed(t, s.url) == "a b c d" })
	if got := values(called.all()); fmt.Sprint(got) != "[a b c d]" {
		t.Errorf("handled %q, want each once", got)
	}
}

// A group is deleted right after a transaction of its handler moved it, which the mover has not
// carried yet: it begins anew all the same.
func TestADeletedGroupIsNotBroughtBackByATransaction(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool, err := pgxpool.New(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	ensure(t, w, "orders", 2)
	publish(t, w, "orders", "a=1", "b=2", "c=3", "d=4")
	inTx := func(to *seen) func(context.Context, weir.Event) error {
		return func(ctx context.Context, e weir.Event) error {
			if err := to.note(ctx, e); err != nil {
				return err
			}
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return e.CommitTx(ctx, tx) })
		}
	}
	var before, after seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: inTx(&before)})
	before.wait(t, 4)
	closeConsumer(t, c)
	if err := w.DeleteGroup(t.Context(), "g"); err != nil {
		t.Fatal(err)
	}
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: inTx(&after)})
	after.wait(t, 4)
}
