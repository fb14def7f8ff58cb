package weir_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/memory"
)

// The store loses its end while a handler works, and the log grows past where the consumer stands.
// What is lost and still in its queue reaches no handler any more, and what has its offsets now is
// not passed over.
func TestAConsumerGoesBackToWhereItsStoreLostItsEnd(t *testing.T) {
	for _, handled := range []int{1, 20} { // of the 20 that are lost; the last one while they get lost
		store := memory.New()
		w := site{memory: shared{store}}.open(t)
		ensure(t, w, "orders", 1)
		var got seen
		lost := numbered("lost ", 20)
		busy, done := make(chan struct{}), make(chan struct{})
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
			if string(e.Value) == lost[handled-1] {
				close(busy)
				<-done
			}
			return got.note(ctx, e)
		}})
		publish(t, w, "orders", numbered("kept ", 3)...)
		got.wait(t, 3)
		committed(t, w, "g")
		restore, changed := store.Backup(), w.Core().IncarnationChanged()
		publish(t, w, "orders", lost...)
		<-busy
		restore(false)
		<-changed
		publish(t, w, "orders", numbered("new ", 30)...)
		close(done)
		want := slices.Concat(numbered("kept ", 3), lost[:handled], numbered("new ", 30))
		if v := values(got.wait(t, len(want))); !slices.Equal(v, want) {
			t.Errorf("after %d lost events the consumer got %q", handled, v)
		}
	}
}

// A batch failed, and its events are tried alone. Then the store loses them: what is new at their
// offsets is tried as if nothing had happened.
func TestNewEventsDoNotInheritTheTroubleOfLostOnes(t *testing.T) {
	store := memory.New()
	w := site{memory: shared{store}}.open(t)
	ensure(t, w, "orders", 1)
	var got seen
	busy, done := make(chan struct{}), make(chan struct{})
	sizes := make(chan int, 10) // of the calls with new events
	failed := false
	consume(t, w, weir.Subscription{
		Group: "g", Topics: []string{"orders"}, MaxBatch: 100, Retry: weir.Retry{Attempts: 2, First: time.Millisecond},
		BatchHandler: func(ctx context.Context, events []weir.Event) error {
			switch first := string(events[0].Value); {
			case first == "lost 0" && len(events) > 1:
				return errors.New("no")
			case first == "lost 0":
				close(busy)
				<-done
				return nil
			case first == "new 0":
				sizes <- len(events)
				if !failed {
					failed = true
					return errors.New("a passing trouble")
				}
			}
			for _, e := range events {
				if err := got.note(ctx, e); err != nil {
					return err
				}
			}
			return nil
		},
	})
	publish(t, w, "orders", "kept")
	got.wait(t, 1)
	committed(t, w, "g")
	restore, changed := store.Backup(), w.Core().IncarnationChanged()
	publish(t, w, "orders", numbered("lost ", 6)...)
	<-busy
	restore(false)
	<-changed
	publish(t, w, "orders", numbered("new ", 12)...)
	close(done)
	if n := next(t, sizes); n != 12 {
		t.Errorf("the handler got %d new events at once, want all 12", n)
	}
	if v, want := values(got.wait(t, 2))[1], "new 0"; v != want {
		t.Errorf("what was handled next is %q, want %q", v, want)
	}
}

// The store keeps an event and loses the reaction to it, with the commit of its position. So the
// manager reacts again, although it has nothing new to read.
func TestAReactionThatTheStoreLostIsMadeAgain(t *testing.T) {
	store := memory.New()
	w := site{memory: shared{store}}.open(t)
	b, transfers := newBank(t, w)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	b.fails = func(e weir.CategoryEvent) error {
		if e.Stream == "second" {
			once.Do(func() {
				close(begun)
				<-goOn
			})
		}
		return nil
	}
	manager := b.manager()
	manager.CommitEvery = time.Millisecond
	if _, err := w.Manage(t.Context(), manager); err != nil {
		t.Fatal(err)
	}
	made := func(n int) {
		t.Helper()
		eventually(t, "the transfers are made", func() bool { return len(b.entries(t, "a", "b")) == n })
		committed(t, w, "bank")
	}
	transferN(t, transfers, "first", 1, transfer{"a", "b"})
	made(2)
	transferN(t, transfers, "second", 1, transfer{"a", "b"})
	<-begun
	restore, changed := store.Backup(), w.Core().IncarnationChanged()
	close(goOn)
	made(4)
	restore(false)
	<-changed
	made(4)
	for what, times := range b.entries(t, "a", "b") {
		if times != 1 {
			t.Errorf("%s %d times", what, times)
		}
	}
}

// The store keeps an event and loses the transaction in which its handler wrote and committed it.
// So it is handled again, although there is nothing new to read.
func TestATransactionThatTheStoreLostIsMadeAgain(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	pool := bills(t, s.url)
	ensure(t, w, "orders", 1)
	begun, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: quick(50), Handler: func(ctx context.Context, e weir.Event) error {
		if string(e.Value) == "b" {
			once.Do(func() {
				close(begun)
				<-goOn
			})
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1)`, string(e.Value)); err != nil {
				return err
			}
			return e.CommitTx(ctx, tx)
		})
	}})
	publish(t, w, "orders", "a", "b")
	<-begun
	restore, changed := pgtest.Backup(t, s.url), w.Core().IncarnationChanged()
	close(goOn)
	eventually(t, "both are billed", func() bool { return billed(t, s.url) == "a b" })
	restore()
	<-changed
	eventually(t, "what was lost is billed again", func() bool { return billed(t, s.url) == "a b" })
	committed(t, w, "g")
	if got := billed(t, s.url); got != "a b" {
		t.Errorf("billed %s", got)
	}
}

// A position that the user chose in the epoch that is now is not taken for one of the epoch in
// which the consumer read before.
func TestASeekIsNotUndoneByTheEpochBeforeIt(t *testing.T) {
	store := memory.New()
	w := site{memory: shared{store}}.open(t)
	ensure(t, w, "orders", 1)
	var got seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	publish(t, w, "orders", numbered("kept ", 3)...)
	got.wait(t, 3)
	c.Pause()
	committed(t, w, "g")
	changed := w.Core().IncarnationChanged()
	store.Backup()(false) // nothing is lost
	<-changed
	publish(t, w, "orders", numbered("skipped ", 10)...)
	if err := c.Seek(t.Context(), weir.Latest); err != nil {
		t.Fatal(err)
	}
	c.Resume()
	publish(t, w, "orders", "next")
	if v := values(got.wait(t, 4))[3]; v != "next" {
		t.Errorf("after the seek %q came", v)
	}
}

// What was handled again up to where the group was before is committed: the store has lost that the
// group was there.
func TestWhatIsHandledAgainIsCommittedAgain(t *testing.T) {
	store := memory.New()
	w := site{memory: shared{store}}.open(t)
	ensure(t, w, "orders", 1)
	var got seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, CommitEvery: time.Hour, Handler: got.note})
	publish(t, w, "orders", numbered("kept ", 3)...)
	got.wait(t, 3)
	commit := func() {
		t.Helper()
		if err := c.Seek(t.Context(), weir.Latest); err != nil {
			t.Fatal(err)
		}
	}
	commit()
	restore, changed := store.Backup(), w.Core().IncarnationChanged()
	publish(t, w, "orders", numbered("lost ", 10)...)
	got.wait(t, 13)
	commit()
	restore(false)
	<-changed
	eventually(t, "the consumer went back", func() bool { a := c.Assigned(); return len(a) == 1 && a[0].Next == 3 && a[0].Committed == 3 })
	publish(t, w, "orders", numbered("new ", 10)...)
	got.wait(t, 23)
	closeConsumer(t, c)
	g, err := w.Group(t.Context(), "g")
	if err != nil || g.Lag != 0 {
		t.Errorf("after the consumer was closed the group is %+v, %v", g, err)
	}
}

// A consumer commits what it handled before it hears that its store lost it. Who goes on there
// begins with what is new.
func TestAPositionIsCommittedWithItsEpoch(t *testing.T) {
	store := memory.New()
	w := site{memory: shared{store}}.open(t)
	ensure(t, w, "orders", 1)
	var got seen
	busy, done := make(chan struct{}), make(chan struct{})
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		if string(e.Value) == "lost 2" {
			close(busy)
			<-done
		}
		return got.note(ctx, e)
	}})
	publish(t, w, "orders", numbered("kept ", 3)...)
	got.wait(t, 3)
	committed(t, w, "g")
	restore, changed := store.Backup(), w.Core().IncarnationChanged()
	publish(t, w, "orders", numbered("lost ", 3)...)
	<-busy
	restore(false)
	<-changed
	publish(t, w, "orders", numbered("new ", 10)...)
	closed := make(chan error, 1)
	go func() { closed <- c.Close(t.Context()) }()
	eventually(t, "the consumer is being closed", c.Closing)
	close(done)
	if err := next(t, closed); err != nil {
		t.Fatal(err)
	}
	if g, err := w.Group(t.Context(), "g"); err != nil || g.Offsets[0].Committed != 6 {
		t.Fatalf("the group is %+v, %v: want 6 committed", g, err)
	}
	var after seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: after.note})
	if v := values(after.wait(t, 7)); v[0] != "new 0" {
		t.Errorf("the next consumer got %q", v)
	}
}

// Read stands exactly where the store loses its end. It ends there, whatever is published
// afterwards.
func TestReadEndsWhereTheStoreLostItsEnd(t *testing.T) {
	for name, later := range map[string]int{"nothing new": 0, "new events": 6} {
		t.Run(name, func(t *testing.T) {
			store := memory.New()
			w := site{memory: shared{store}}.open(t)
			ensure(t, w, "orders", 1)
			publish(t, w, "orders", "kept")
			restore := store.Backup()
			large := make([]byte, 1<<20-100)
			_, _ = rand.Read(large) // never fails
			for range 4 {
				publish(t, w, "orders", string(large)) // too large to come with the first
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			var got []int
			for e, err := range w.Read(ctx, weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, len(e.Value)); len(got) > 1 {
					continue
				}
				changed := w.Core().IncarnationChanged()
				restore(false)
				<-changed
				for range later {
					publish(t, w, "orders", "new event")
				}
			}
			if !slices.Equal(got, []int{len("kept")}) {
				t.Errorf("the values have %d bytes", got)
			}
		})
	}
}

// A group is reset to the end, and the store loses its end before that is committed: what is
// published then is read.
func TestAGroupThatWasResetToALostEndReadsWhatComesThere(t *testing.T) {
	store := memory.New()
	seam := &holdsUp{Store: store}
	w := site{memory: seam}.open(t, weir.Options{Poll: 10 * time.Millisecond})
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("kept ", 2)...)
	restore, changed := store.Backup(), w.Core().IncarnationChanged()
	publish(t, w, "orders", numbered("lost ", 5)...)
	seam.mu.Lock()
	seam.once = func() {
		restore(false)
		<-changed
	}
	seam.mu.Unlock()
	err := w.ResetGroup(t.Context(), "g", "orders", weir.Latest)
	if errors.Is(err, weir.ErrUnavailable) {
		err = w.ResetGroup(t.Context(), "g", "orders", weir.Latest) // the end that there is now
	}
	if err != nil {
		t.Fatal(err)
	}
	want := numbered("new ", 8)
	publish(t, w, "orders", want...)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	if v := values(got.wait(t, len(want))); !slices.Equal(v[len(v)-len(want):], want) {
		t.Errorf("the group got %q, want all of %q", v, want)
	}
}

// holdsUp is a store that calls a function once, before it is asked for a group.
type holdsUp struct {
	*memory.Store
	mu   sync.Mutex // guards once
	once func()
}

func (*holdsUp) Close() error { return nil }

func (h *holdsUp) asked(key string) {
	h.mu.Lock()
	do := func() {}
	if h.once != nil && strings.HasPrefix(key, "group/") {
		do, h.once = h.once, nil
	}
	h.mu.Unlock()
	do()
}

func (h *holdsUp) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	h.asked(keys[0])
	return h.Store.Get(ctx, keys, maxBytes)
}

func (h *holdsUp) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	h.asked(prefix)
	return h.Store.List(ctx, prefix, after, limit)
}

// Shard 0 loses a leader epoch, which began after its copy was taken, and a group's offsets of that
// epoch are on the other shard. No process of before is left. The group goes back to what shard 0
// has now, and is given all that is appended in the place of what is lost.
func TestAGroupGoesBackAlthoughTheEpochOfItsOffsetsIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, time.March, 1, 0, 0, 0, 0, time.UTC))) // epochs are numbered by the clock
		stores := []*memory.Store{memory.New(), memory.New()}
		open := func() *weir.Log {
			t.Helper()
			w, err := weir.OpenStore(t.Context(), openShards(t, stores[0].Again(), stores[1].Again()), weir.Options{Logger: silent})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = w.Close(context.Background()) }) // unless it is closed
			return w
		}
		groups := numbered("g", 4)
		consumeAll := func(w *weir.Log, want ...string) {
			t.Helper()
			for _, name := range groups {
				var got seen
				consume(t, w, weir.Subscription{Group: name, Topics: []string{"orders"}, Start: weir.Earliest, Handler: got.note})
				if v := values(got.wait(t, len(want))); !slices.Equal(v, want) {
					t.Errorf("%s got %q, want %q", name, v, want)
				}
			}
			if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
		w := open()
		ensure(t, w, "orders", 1)
		restore, changed := stores[0].Backup(), w.Core().IncarnationChanged()
		stores[0].Backup()(false) // nothing is lost, and an epoch begins
		<-changed
		lost := numbered("lost ", 5)
		publish(t, w, "orders", lost...)
		consumeAll(w, lost...)
		time.Sleep(time.Minute)
		restore(false)

		w = open()
		there := numbered("new ", 8)
		publish(t, w, "orders", there...)
		consumeAll(w, there...)
		if kvs, err := stores[1].List(t.Context(), "group/", "", 100); err != nil || len(kvs) == 0 {
			t.Errorf("no group is on the other shard (%v)", err)
		}
	})
}
