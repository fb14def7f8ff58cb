package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// stalling is a store whose calls about keys under stuck end only with their ctx; while away is
// set, so do all others.
type stalling struct {
	eventlog.Store
	away  atomic.Bool
	calls atomic.Int64 // about keys under stuck
}

func (s *stalling) hang(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, ctx.Err())
}

func (s *stalling) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "stuck/") {
		s.calls.Add(1)
		return nil, s.hang(ctx)
	}
	if s.away.Load() {
		return nil, s.hang(ctx)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *stalling) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	if s.away.Load() {
		return nil, since, s.hang(ctx)
	}
	return s.Store.Changes(ctx, since)
}

// failures counts the errors of the store.
type failures struct{ n atomic.Int64 }

func (*failures) Flushed(eventlog.Flush)      {}
func (*failures) Fetched(int, bool)           {}
func (f *failures) StoreFailed(string, error) { f.n.Add(1) }
func (*failures) Retried()                    {}
func (*failures) Delivered(time.Duration)     {}

// Whose time ends while the store answers others hears that, and not that the store cannot be
// reached; the store did not fail.
func TestTheEndOfACallersTimeIsNoErrorOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, failed := &stalling{Store: memory.New()}, new(failures)
		log := open(t, store, eventlog.Config{Observer: failed})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		for range 100 { // all but the first begin when the time is over
			_, err := log.List(ctx, "stuck/", "", 1)
			if !errors.Is(err, eventlog.ErrOverloaded) || !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("%v, want ErrOverloaded", err)
			}
		}
		if n := store.calls.Load(); n != 1 {
			t.Errorf("the store had %d calls, want 1: the others could not end in time", n)
		}
		if n := failed.n.Load(); n != 0 {
			t.Errorf("%d errors of the store were counted", n)
		}
	})
}

func TestAStoreThatAnswersNobodyIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, failed := &stalling{Store: memory.New()}, new(failures)
		log := open(t, store, eventlog.Config{Observer: failed})
		store.away.Store(true)
		time.Sleep(time.Second) // the log's poll of the store hangs as well
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := log.List(ctx, "stuck/", "", 1); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrOverloaded) {
			t.Errorf("%v, want ErrUnavailable and not ErrOverloaded", err)
		}
		if failed.n.Load() == 0 {
			t.Error("no error of the store was counted")
		}
	})
}

// sluggish is a store of which each commit takes a second.
type sluggish struct{ eventlog.Store }

func (s sluggish) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(time.Second)
	return s.Store.Commit(ctx, flush)
}

// A queue that clients have filled keeps no lease of this process waiting. What clients could not
// submit in time is told as such.
func TestClientsThatFillTheQueueDoNotKeepUpkeepOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const each = 10 << 10
		log := open(t, sluggish{memory.New()}, eventlog.Config{}.With(eventlog.Limits{FlushBytes: 1, QueueBytes: 40 * each}))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		var refused atomic.Int64
		for i := range 100 {
			go func() {
				_, err := log.Append(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: fmt.Sprint("client/", i), Version: 1, Value: make([]byte, each)}}})
				if errors.Is(err, eventlog.ErrOverloaded) {
					refused.Add(1)
				} else if errors.Is(err, eventlog.ErrUnavailable) {
					t.Errorf("%v, want ErrOverloaded", err)
				}
			}()
		}
		synctest.Wait()
		began := time.Now()
		lease := eventlog.Entry{Puts: []eventlog.Put{{Key: "lease", Version: 1, Value: []byte("mine")}}}
		if _, err := log.SubmitUpkeep(ctx, lease).Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the lease was renewed after %v, want the commit in progress and its own at most", took)
		}
		<-ctx.Done()
		synctest.Wait()
		if n := refused.Load(); n < 50 {
			t.Errorf("%d clients heard ErrOverloaded, want most", n)
		}
	})
}
