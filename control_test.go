package weir_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

func TestAPausedPartitionRestsAndOthersGoOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t, weir.Options{Partitioner: weir.ByPartitionField, Poll: 10 * time.Millisecond})
		ensure(t, w, "orders", 2)
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		assigned(t, 2, c)
		to := func(partition int32, value string) {
			t.Helper()
			if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: partition, Value: []byte(value)}); err != nil {
				t.Fatal(err)
			}
		}
		zero := weir.TopicPartition{Topic: "orders", Partition: 0}
		c.Pause(zero)
		to(0, "resting")
		to(1, "one")
		to(1, "two")
		if v := values(got.wait(t, 2)); !slices.Equal(v, []string{"one", "two"}) {
			t.Errorf("while partition 0 rests: %q", v)
		}
		if a := c.Assigned(); !a[0].Paused || a[1].Paused {
			t.Errorf("assigned: %+v", a)
		}
		c.Resume(zero)
		if v := values(got.wait(t, 3)); v[2] != "resting" {
			t.Errorf("after Resume: %q", v)
		}
		c.Pause()
		to(0, "a")
		to(1, "b")
		c.Resume(zero)
		if v := values(got.wait(t, 4)); v[3] != "a" {
			t.Errorf("all paused but partition 0: %q", v)
		}
		c.Resume()
		if v := values(got.wait(t, 5)); v[4] != "b" {
			t.Errorf("after Resume of all: %q", v)
		}
	})
}

// When Pause has returned, no call begins.
func TestPauseFromTheHandlerStopsTheNextCall(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	var c *weir.Consumer
	ready := make(chan struct{})
	calls := make(chan string, 10)
	c = consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
		<-ready
		c.Pause()
		calls <- string(e.Value)
		return nil
	}})
	close(ready)
	publish(t, w, "orders", "1", "2", "3")
	for i, want := range []string{"1", "2", "3"} {
		if got := next(t, calls); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		eventually(t, "the event is handled and the partition rests", func() bool {
			a := c.Assigned()[0]
			return a.Next == int64(i+1) && a.Paused
		})
		select {
		case v := <-calls:
			t.Fatalf("event %s came although all was paused", v)
		default:
		}
		c.Resume()
	}
}

func TestSeek(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		var sent []weir.Event
		for i := range 10 {
			sent = append(sent, weir.Event{Topic: "orders", Value: []byte(fmt.Sprint(i)), Time: time.UnixMilli(int64(1000 * (i + 1)))})
		}
		if _, err := w.Publish(t.Context(), sent...); err != nil {
			t.Fatal(err)
		}
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		got.wait(t, 10)
		for _, to := range []struct {
			position weir.Position
			from     int
		}{
			{weir.AtOffset(7), 7},
			{weir.AtTime(time.UnixMilli(3500)), 3},
			{weir.AtTime(time.UnixMilli(4000)), 3},
			{weir.Earliest, 0},
			{weir.AtTime(time.UnixMilli(0)), 0},
		} {
			before := len(got.all())
			if err := c.Seek(t.Context(), to.position); err != nil {
				t.Fatal(err)
			}
			want := numbered("", 10)[to.from:]
			if v := values(got.wait(t, before+len(want))[before:]); !slices.Equal(v, want) {
				t.Errorf("seek to %v: %q", to.position, v)
			}
		}
		c.Pause()
		publish(t, w, "orders", "passed over")
		if err := c.Seek(t.Context(), weir.Latest, weir.TopicPartition{Topic: "orders"}); err != nil {
			t.Fatal(err)
		}
		c.Resume()
		before := len(got.all())
		publish(t, w, "orders", "after")
		if v := values(got.wait(t, before+1)[before:]); !slices.Equal(v, []string{"after"}) {
			t.Errorf("seek to the latest: %q", v)
		}
		if err := c.Seek(t.Context(), weir.AtOffset(100)); err == nil {
			t.Error("seek behind the end worked")
		}
		if err := c.Seek(t.Context(), weir.Earliest, weir.TopicPartition{Topic: "orders", Partition: 9}); !errors.Is(err, weir.ErrNotAssigned) {
			t.Errorf("seek in a partition of somebody else: %v, want ErrNotAssigned", err)
		}
	})
}

func TestASeekIsCommitted(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", numbered("", 5)...)
		var got, later seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		got.wait(t, 5)
		c.Pause()
		if err := c.Seek(t.Context(), weir.AtOffset(2)); err != nil {
			t.Fatal(err)
		}
		if a := c.Assigned()[0]; a.Committed != 2 || a.Next != 2 {
			t.Errorf("after the seek: %+v", a)
		}
		closeConsumer(t, c)
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: later.note})
		if v := values(later.wait(t, 3)); !slices.Equal(v, []string{"2", "3", "4"}) {
			t.Errorf("the next consumer: %q", v)
		}
	})
}

// A handler that seeks ends its call first; what it did does not move the place.
func TestAHandlerMaySeek(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 4)...)
	var c *weir.Consumer
	ready := make(chan struct{})
	var got seen
	sought := false
	c = consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		<-ready
		if e.Offset == 2 && !sought {
			sought = true
			if err := c.Seek(ctx, weir.Earliest); err != nil {
				return err
			}
		}
		return got.note(ctx, e)
	}})
	close(ready)
	if v := values(got.wait(t, 7)); !slices.Equal(v, []string{"0", "1", "2", "0", "1", "2", "3"}) {
		t.Errorf("got %q", v)
	}
}

func TestPauseHoldsForPartitionsThatComeLater(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	var got seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	assigned(t, 1, c)
	c.Pause()
	if err := w.RaisePartitions(t.Context(), "orders", 8); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
	}
	assigned(t, 8, c)
	for _, p := range c.Assigned() {
		if !p.Paused {
			t.Errorf("%v is not paused", p.TopicPartition)
		}
	}
	if n := len(got.all()); n != 0 {
		t.Errorf("%d events came although all is paused", n)
	}
	c.Resume()
	got.wait(t, 20)
}

// readOnly is a store that takes nothing while it is locked.
type readOnly struct {
	eventlog.Store
	locked atomic.Bool
}

func (r *readOnly) Commit(ctx context.Context, f []eventlog.Entry) ([]eventlog.Outcome, error) {
	if r.locked.Load() {
		return nil, fmt.Errorf("%w: locked for the test", eventlog.ErrUnavailable)
	}
	return r.Store.Commit(ctx, f)
}

// While the store takes nothing a seek cannot be committed. It is when the store does again, though
// nothing is handled meanwhile.
func TestASeekThatCouldNotBeCommittedIsCommittedLater(t *testing.T) {
	s := newSite(t, "memory")
	store := &readOnly{Store: s.memory}
	w, other := site{memory: store}.open(t), s.open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 5)...)
	var got seen
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: time.Minute, Handler: got.note})
	got.wait(t, 5)
	committed(t, w, "g")
	c.Pause()
	store.locked.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Seek(ctx, weir.AtOffset(2)); err == nil {
		t.Fatal("the seek was committed to a store that takes nothing")
	}
	store.locked.Store(false)
	eventually(t, "the group is where the seek went", func() bool {
		g, err := other.Group(t.Context(), "g")
		return err == nil && len(g.Offsets) == 1 && g.Offsets[0].Committed == 2
	})
}

// Who goes elsewhere while it is decided what becomes of an event does not find the partition
// halted there.
func TestASeekWhileAnEventIsGivenUpGoesOn(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "bad", "passed over")
	var c *weir.Consumer
	ready := make(chan struct{})
	var got seen
	c = consume(t, w, weir.Subscription{
		Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 1},
		Handler: func(ctx context.Context, e weir.Event) error {
			if string(e.Value) == "bad" {
				return errors.New("bad")
			}
			return got.note(ctx, e)
		},
		DeadLetter: func(ctx context.Context, f weir.Failure) ([]weir.Event, error) {
			<-ready
			if err := c.Seek(ctx, weir.Latest); err != nil {
				t.Error(err)
			}
			return weir.Halt(ctx, f)
		},
	})
	close(ready)
	eventually(t, "the seek has happened", func() bool { a := c.Assigned(); return len(a) == 1 && a[0].Next == 2 })
	publish(t, w, "orders", "behind")
	if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"behind"}) {
		t.Errorf("got %q", v)
	}
}
