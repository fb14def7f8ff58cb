package weir_test

// What the zero values of the options promise. Time is fake here.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// Many partitions fail at once, each with its own pauses: over so many of them the shortest and the
// longest pauses come near the bounds. That one does not has a chance of less than 1 in a million.
func TestPausesGrowWithFullJitterUpToMax(t *testing.T) {
	for name, c := range map[string]struct {
		retry   weir.Retry
		longest []time.Duration // after each attempt but the last
	}{
		"zero value": {weir.Retry{}, []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
			3200 * time.Millisecond, 6400 * time.Millisecond, 12800 * time.Millisecond, 25600 * time.Millisecond,
			30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second, 30 * time.Second}},
		"default Max": {weir.Retry{Attempts: 5, First: 10 * time.Second},
			[]time.Duration{10 * time.Second, 20 * time.Second, 30 * time.Second, 30 * time.Second}},
		"own": {weir.Retry{Attempts: 4, First: time.Second, Max: 3 * time.Second}, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const partitions = 200
				w := newSite(t, "memory").open(t, weir.Options{Partitioner: weir.ByPartitionField, Logger: discard})
				ensure(t, w, "orders", partitions)
				var mu sync.Mutex
				began := make([][]time.Time, partitions) // of the calls
				var given seen
				consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: c.retry,
					Handler: func(_ context.Context, e weir.Event) error {
						mu.Lock()
						defer mu.Unlock()
						began[e.Partition] = append(began[e.Partition], time.Now())
						return errors.New("no")
					},
					DeadLetter: func(ctx context.Context, f weir.Failure) ([]weir.Event, error) { return nil, given.note(ctx, f.Event) },
				})
				for p := range partitions {
					if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: int32(p)}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(5 * time.Minute)
				if n := len(given.all()); n != partitions {
					t.Fatalf("%d of %d events were given up", n, partitions)
				}
				for attempt, longest := range c.longest {
					var pauses []time.Duration
					for p, calls := range began {
						if len(calls) != len(c.longest)+1 {
							t.Fatalf("the event of partition %d was tried %d times, want %d", p, len(calls), len(c.longest)+1)
						}
						pauses = append(pauses, calls[attempt+1].Sub(calls[attempt]))
					}
					if shortest, is := slices.Min(pauses), slices.Max(pauses); is > longest || is < longest*9/10 || shortest > longest/10 {
						t.Errorf("after attempt %d: pauses of %v to %v, want anything up to %v", attempt+1, shortest, is, longest)
					}
				}
			})
		})
	}
}

func TestMaxWaitIsASecondByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSite(t, "memory").open(t)
		ensure(t, w, "orders", 1)
		for given, want := range map[time.Duration]time.Duration{0: time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
			got := newBatches()
			c := consume(t, w, weir.Subscription{Group: fmt.Sprint(given), Topics: []string{"orders"}, Start: weir.Latest, BatchHandler: got.note, MinBatch: 2, MaxWait: given})
			time.Sleep(time.Minute)
			began := time.Now()
			publish(t, w, "orders", "alone")
			next(t, got.ch)
			if took := time.Since(began); took != want {
				t.Errorf("MaxWait %v: an event came alone after %v, want %v", given, took, want)
			}
			closeConsumer(t, c)
		}
	})
}

func TestMaxBatchIsAHundredByDefault(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", numbered("", 250)...)
	got := newBatches()
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, BatchHandler: got.note})
	for _, want := range []int{100, 100, 50} {
		if n := len(next(t, got.ch)); n != want {
			t.Errorf("a batch of %d, want %d", n, want)
		}
	}
}

// offsetTimes is a store that notes when offsets are committed.
type offsetTimes struct {
	eventlog.Store
	mu sync.Mutex // guards at
	at []time.Time
}

func (s *offsetTimes) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if slices.ContainsFunc(flush, func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "group/offset/") })
	}) {
		s.mu.Lock()
		s.at = append(s.at, time.Now())
		s.mu.Unlock()
	}
	return s.Store.Commit(ctx, flush)
}

// A hundred events of 25 ms each in two partitions: the first is committed at once, and then all
// that was handled in each 100 ms together.
func TestOffsetsAreCommittedEvery100MillisecondsByDefault(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 100 * time.Millisecond, 300 * time.Millisecond: 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			store := &offsetTimes{Store: memory.New()}
			w := site{memory: store}.open(t, weir.Options{Partitioner: weir.ByPartitionField})
			ensure(t, w, "orders", 2)
			for i := range 100 {
				if _, err := w.Publish(t.Context(), weir.Event{Topic: "orders", Partition: int32(i % 2)}); err != nil {
					t.Fatal(err)
				}
			}
			consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, CommitEvery: given, Handler: func(context.Context, weir.Event) error {
				time.Sleep(25 * time.Millisecond)
				return nil
			}})
			joined := time.Now() // what is committed until now is where it begins
			time.Sleep(1200 * time.Millisecond)
			store.mu.Lock()
			defer store.mu.Unlock()
			at := slices.DeleteFunc(store.at, func(at time.Time) bool { return !at.After(joined) })
			if len(at) < 4 {
				t.Fatalf("CommitEvery %v: %d commits in 1.2 s, while it was busy", given, len(at))
			}
			for i := range at[1:] {
				if pause := at[i+1].Sub(at[i]); pause != want {
					t.Errorf("CommitEvery %v: %v between two commits, want %v", given, pause, want)
				}
			}
		})
	}
}

func TestAConsumersNameIsThatOfItsProcessByDefault(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	want := fmt.Sprintf("%s-%d", filepath.Base(os.Args[0]), os.Getpid())
	failures := make(chan weir.Failure, 1)
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: fails, DeadLetter: func(_ context.Context, f weir.Failure) ([]weir.Event, error) {
		failures <- f
		return nil, nil
	}})
	publish(t, w, "orders", "v")
	if f := next(t, failures); f.Consumer != want {
		t.Errorf("in a Failure it is %q, want %q", f.Consumer, want)
	}
	if g, err := w.Group(t.Context(), "g"); err != nil || g.Members[0].Name != want {
		t.Errorf("the group has %+v (%v), want %q", g.Members, err, want)
	}
}

// A consumer gives a sign of life three times a session at least. Cut off from the store it lets go
// of its partitions a session after the last one, and the others take them over not before that,
// and at most half a session and a sign of life later.
func TestASessionIsTenSecondsByDefault(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 10 * time.Second, 3 * time.Second: 3 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newSite(t, "memory")
			store := &cutOff{Store: s.memory}
			lame, sound := site{memory: store}.open(t, weir.Options{}), s.open(t)
			ensure(t, sound, "orders", 2)
			sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: given, Handler: newBlocking().handle}
			c := consume(t, lame, sub)
			other := consume(t, sound, sub)
			time.Sleep(time.Minute)
			assigned(t, 2, c, other)
			store.away.Store(true)
			began := time.Now()
			until := func(yes func() bool) time.Duration {
				for !yes() && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				return time.Since(began)
			}
			if took := until(func() bool { return len(c.Assigned()) == 0 }); took < want*6/10 || took > want+100*time.Millisecond {
				t.Errorf("Session %v: who was cut off let go after %v", given, took)
			}
			if took := until(func() bool { return len(other.Assigned()) == 2 }); took < want*6/10 || took > 2*want {
				t.Errorf("Session %v: the other took over after %v", given, took)
			}
			store.away.Store(false)
		})
	}
	w := newSite(t, "memory").open(t)
	if _, err := w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Session: time.Second - 1, Handler: fails}); err == nil {
		t.Error("a session of less than a second was taken")
	}
}

// IdempotencyAge, and its default of 24 h: a key is known until then, and is forgotten some time
// later.
func TestAnIdempotencyKeyIsKnownForADayByDefault(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Hour: time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := newSite(t, "memory").open(t, weir.Options{IdempotencyAge: given, Poll: time.Hour, Logger: discard})
			ensure(t, w, "orders", 1)
			once := func() (repeated bool) {
				t.Helper()
				_, repeated, err := w.PublishOnce(t.Context(), "key", events("orders", "v")...)
				if err != nil {
					t.Fatal(err)
				}
				return repeated
			}
			once()
			time.Sleep(want * 95 / 100)
			if !once() {
				t.Errorf("IdempotencyAge %v: the key is not known after %v", given, want*95/100)
			}
			time.Sleep(want / 5)
			if once() {
				t.Errorf("IdempotencyAge %v: the key is still known after %v", given, want*115/100)
			}
		})
	}
}
