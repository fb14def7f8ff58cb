package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// versions are those of the events that a stream has, also while some are forgotten.
func versions(t *testing.T, c *stream.Category, name string) (list []int64) {
	t.Helper()
	for e, err := range c.Events(t.Context(), name, stream.Range{}) {
		if errors.Is(err, stream.ErrChanged) {
			return versions(t, c, name)
		}
		check(t, err)
		list = append(list, e.Version)
	}
	return list
}

// sweeping runs the sweeps until the test ends.
func sweeping(t *testing.T, p process) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
	})
}

func TestAStreamKeepsItsNewestEvents(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p := begin(t, reopen(t))
		c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Retention: stream.Retention{Events: 3}})
		check(t, err)
		old := time.Now().Add(-time.Hour)
		for i := range 5 {
			for _, s := range []string{"many", "all", "young"} {
				e := stream.NewEvent{Type: fmt.Sprint(i)}
				if i < 4 {
					e.Time = old
				}
				_, err := c.Append(t.Context(), s, stream.Any, e)
				check(t, err)
			}
		}
		_, err = c.Append(t.Context(), "few", stream.Any, stream.NewEvent{Type: "t"})
		check(t, err)
		check(t, c.SetStreamRetention(t.Context(), "all", &stream.Retention{}))
		check(t, c.SetStreamRetention(t.Context(), "young", &stream.Retention{Age: time.Minute}))
		sweeping(t, p)
		sweeping(t, begin(t, reopen(t)))
		want := map[string][]int64{"many": {2, 3, 4}, "all": {0, 1, 2, 3, 4}, "young": {4}, "few": {0}}
		for end := time.Now().Add(20 * time.Second); ; {
			got := make(map[string][]int64)
			for s := range want {
				got[s] = versions(t, c, s)
			}
			if fmt.Sprint(got) == fmt.Sprint(want) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%v, want %v", got, want)
			}
		}
		if done, err := c.Append(t.Context(), "young", 5, stream.NewEvent{Type: "t"}); err != nil || done.Version != 6 {
			t.Errorf("appended to what was forgotten in part: %+v, %v", done, err)
		}
	})
}

// It is applied about every ten minutes, however many processes there are.
func TestRetentionIsAppliedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := orders(t, func(*testing.T) eventlog.Store { return memory.New() })
		sweeping(t, p)
		check(t, c.SetRetention(t.Context(), stream.Retention{Age: time.Hour}))
		if r, err := c.Retention(t.Context()); err != nil || r != (stream.Retention{Age: time.Hour}) {
			t.Errorf("%+v, %v", r, err)
		}
		for range 4 {
			_, err := c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "t"})
			check(t, err)
			time.Sleep(30 * time.Minute) // fake time
		}
		if got := versions(t, c, "s"); !slices.Equal(got, []int64{2, 3}) && !slices.Equal(got, []int64{1, 2, 3}) {
			t.Errorf("after two hours it has %v", got)
		}
		check(t, c.SetRetention(t.Context(), stream.Retention{}))
		time.Sleep(time.Hour)
		if got := versions(t, c, "s"); len(got) < 2 {
			t.Errorf("it has %v, and everything was to be kept", got)
		}
	})
}

// late is a store whose clock is a month behind that of the process, which is wrong.
type late struct{ eventlog.Store }

const lateBy = 30 * 24 * time.Hour

func (s late) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		if kvs[i].Now != 0 {
			kvs[i].Now -= eventlog.Timestamp(lateBy.Milliseconds())
		}
	}
	return kvs, err
}

// One process whose clock is ahead would forget what all others keep.
func TestNothingIsForgottenByAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := orders(t, func(*testing.T) eventlog.Store { return late{memory.New()} })
		for _, age := range []time.Duration{48 * time.Hour, time.Minute} {
			_, err := c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "t", Time: time.Now().Add(-lateBy - age)})
			check(t, err)
		}
		check(t, c.SetRetention(t.Context(), stream.Retention{Age: 24 * time.Hour}))
		sweeping(t, p)
		time.Sleep(time.Hour)
		if got := versions(t, c, "s"); !slices.Equal(got, []int64{1}) {
			t.Errorf("it has %v, want the event that is not a day old by the store's clock", got)
		}
	})
}

func TestANegativeRetentionIsRefused(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "t"})
		check(t, err)
		var invalid *eventlog.InvalidError
		for _, r := range []stream.Retention{{Events: -1}, {Age: -1}} {
			if err := c.SetRetention(t.Context(), r); !errors.As(err, &invalid) {
				t.Errorf("category, %+v: %v", r, err)
			}
			if err := c.SetStreamRetention(t.Context(), "s", &r); !errors.As(err, &invalid) {
				t.Errorf("stream, %+v: %v", r, err)
			}
			if _, err := p.CreateCategory(t.Context(), stream.Spec{Name: "other", Retention: r}); !errors.As(err, &invalid) {
				t.Errorf("new category, %+v: %v", r, err)
			}
		}
	})
}

// retained waits until a stream has so many events.
func retained(t *testing.T, c *stream.Category, name string, want int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		got := versions(t, c, name)
		if len(got) == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("stream %s has %v, want %d events", name, got, want)
		}
	}
}

// Retention leaves what an aggregate goes on from; where somebody forgets more, its state is an
// error and not wrong.
func TestAnAggregateIsWholeAfterRetention(t *testing.T) {
	p := begin(t, memory.New())
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Retention: stream.Retention{Events: 5}})
	check(t, err)
	a := stream.Aggregate[int]{
		Category: c, SnapshotEvery: 10,
		Apply:  func(n int, _ stream.Event) (int, error) { return n + 1, nil },
		Encode: func(n int) ([]byte, error) { return fmt.Append(nil, n), nil },
		Decode: func(b []byte) (n int, err error) { _, err = fmt.Sscan(string(b), &n); return n, err },
	}
	for range 18 {
		_, err := a.Do(t.Context(), "s", func(int) ([]stream.NewEvent, error) { return []stream.NewEvent{{Type: "e"}}, nil })
		check(t, err)
	}
	sweeping(t, p)
	retained(t, c, "s", 8) // the snapshot is at version 10
	if n, at, err := a.Load(t.Context(), "s"); err != nil || n != 18 || at != 18 {
		t.Errorf("state %d at version %d, %v, want 18", n, at, err)
	}
	check(t, c.Forget(t.Context(), "s", 13))
	if n, _, err := a.Load(t.Context(), "s"); !errors.Is(err, stream.ErrForgotten) {
		t.Errorf("with events after the snapshot forgotten: state %d, %v, want ErrForgotten", n, err)
	}
}

func TestRetentionObeysWhatWasSetMeanwhile(t *testing.T) {
	store := &hooked{Store: memory.New(), prefix: "stream/head/"}
	p := begin(t, store)
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 1, Retention: stream.Retention{Events: 1}})
	check(t, err)
	for _, s := range []string{"s", "t"} {
		for range 5 {
			_, err := c.Append(t.Context(), s, stream.Any, stream.NewEvent{Type: "e"})
			check(t, err)
		}
	}
	done := make(chan error)
	set := func() { done <- c.SetStreamRetention(context.Background(), "s", &stream.Retention{}) } // once the sweep has listed the heads
	store.after.Store(&set)
	sweeping(t, p)
	check(t, <-done)
	retained(t, c, "t", 1)
	if got := versions(t, c, "s"); len(got) != 5 {
		t.Errorf("it has %v, and was to keep all", got)
	}
}

func TestADamagedStreamHoldsUpNoOthersRetention(t *testing.T) {
	p := begin(t, memory.New())
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 1, Retention: stream.Retention{Age: time.Minute}})
	check(t, err)
	for _, s := range []string{"a", "b"} {
		_, err := c.Append(t.Context(), s, stream.Any, stream.NewEvent{Type: "e", Time: time.Now().Add(-time.Hour)})
		check(t, err)
	}
	kvs, err := p.log.List(t.Context(), "stream/event/", "", 10)
	check(t, err)
	_, err = p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kvs[0].Key, Version: kvs[0].Version + 1, Value: []byte("damaged")}}})
	check(t, err)
	sweeping(t, p)
	retained(t, c, "b", 0)
}
