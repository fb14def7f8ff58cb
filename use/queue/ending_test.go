package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// counting is a store that counts its commits.
type counting struct {
	eventlog.Store
	commits atomic.Int64
	nth     func(n int64) // may be nil: is called before each
}

func (s *counting) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	n := s.commits.Add(1)
	if s.nth != nil {
		s.nth(n)
	}
	return s.Store.Commit(ctx, flush)
}

func enqueueOld(t *testing.T, q *queue.Queue, n int) {
	t.Helper()
	for done := 0; done < n; done += 500 {
		old := make([]queue.NewMessage, min(500, n-done))
		for i := range old {
			old[i] = queue.NewMessage{Value: []byte("old"), Time: time.Now().Add(-time.Hour)}
		}
		if _, err := q.Enqueue(t.Context(), old...); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClaimGetsPastManyMessagesThatAreTooOldInFewCommits(t *testing.T) {
	const old = 3000
	for name, settings := range map[string]queue.Settings{
		"dead letters":     {},
		"dropped":          {DropExpired: true},
		"one at a time":    {Concurrency: 1},
		"ordered by key":   {KeyOrder: true},
		"one may be tried": {Attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &counting{Store: newStore(t)}
				settings.TTL = 30 * time.Minute
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1, Settings: settings})
				enqueueOld(t, q, old)
				enqueue(t, q, "new", "newer", "newest")
				before := store.commits.Load()
				got := claimN(t, q, 1)
				if commits := store.commits.Load() - before; values(got) != "new " || commits > 30 {
					t.Errorf("claimed %q with %d commits, want new with 30 at most", values(got), commits)
				}
				synctest.Wait() // what it did not need is given back
				ack(t, q, got...)
				next := claimN(t, q, 1)
				ack(t, q, next...)
				if last := claimN(t, q, 1); values(append(next, last...)) != "newer newest " || next[0].Attempt != 1 || last[0].Attempt != 1 {
					t.Errorf("then %v and %v are claimed, want newer and newest for the first time", next, last)
				}
				if s, err := q.Stats(t.Context()); err != nil || s.Ready+s.Waiting != 0 || s.Dead != map[bool]int64{true: 0, false: old}[settings.DropExpired] {
					t.Errorf("there are %+v, %v", s, err)
				}
			})
		})
	}
}

// A claim ends with its context, its wait or Stop, also while all that it gets has to end.
func TestAClaimThatFindsOnlyMessagesThatAreTooOldEndsInTime(t *testing.T) {
	stopped := make(chan struct{})
	close(stopped)
	for name, c := range map[string]queue.Claim{"ctx": {Wait: 5 * time.Minute}, "wait": {Wait: 3 * time.Second}, "no wait": {}, "stop": {Wait: 5 * time.Minute, Stop: stopped}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &counting{Store: newStore(t)}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: 30 * time.Minute, Window: 10, Lease: time.Hour}})
				enqueueOld(t, q, 3000)
				store.nth = func(int64) { time.Sleep(100 * time.Millisecond) }
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				if name != "ctx" {
					ctx = t.Context()
				}
				began := time.Now()
				got, err := q.Claim(ctx, c)
				if took := time.Since(began); len(got) != 0 || took > 6*time.Second {
					t.Errorf("claimed %q after %v (%v)", values(got), took, err)
				}
				if name != "ctx" && err != nil {
					t.Error(err)
				}
			})
		})
	}
}
