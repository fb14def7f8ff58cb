package stream_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// full is a store that can be read, and not written to while its disk is full.
type full struct {
	*memory.Store
	is atomic.Bool
}

func (f *full) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if f.is.Load() {
		return nil, fmt.Errorf("%w: for the test", eventlog.ErrNoSpace)
	}
	return f.Store.Commit(ctx, flush)
}

// What nobody waits for any more is not in memory, and does not happen minutes later. Who shared an
// entry with somebody who still waited cannot know.
func TestAnAppendThatNobodyWaitsForIsWithdrawn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &full{Store: memory.New()}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		store.is.Store(true)
		type result struct {
			err  error
			took time.Duration
		}
		begin := func(name string, patience time.Duration) <-chan result {
			done := make(chan result, 1)
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				began := time.Now()
				_, err := c.Append(ctx, name, stream.Any, plain("a")...)
				done <- result{err, time.Since(began)}
			}()
			synctest.Wait()
			return done
		}
		want := func(what string, done <-chan result, patience time.Duration, unsure bool) {
			t.Helper()
			r := <-done
			if errors.Is(r.err, eventlog.ErrUnsure) != unsure || errors.Is(r.err, eventlog.ErrUnavailable) == unsure || r.took > patience {
				t.Errorf("%s: %v after %v", what, r.err, r.took)
			}
		}
		alone := begin("alone", 10*time.Second)
		on := begin("shared", 5*time.Second) // it is on its way when the others come
		first, last := begin("shared", 10*time.Second), begin("shared", 20*time.Second)
		want("alone in its entry", alone, 10*time.Second, false)
		want("before the others", on, 5*time.Second, false)
		want("gives up before another with which it shares an entry", first, 10*time.Second, true)
		want("is the last to give up", last, 20*time.Second, false)
		store.is.Store(false)
		time.Sleep(time.Minute) // of fake time
		for _, name := range []string{"alone", "shared"} {
			if s, err := c.State(t.Context(), name); err != nil || s.Exists {
				t.Errorf("a minute after all gave up, stream %s is %+v, %v", name, s, err)
			}
		}
		_, err := c.Append(t.Context(), "shared", stream.NoStream, plain("b")...)
		check(t, err)
	})
}

// Where reading takes long as well, giving up ends the reading.
func TestAnAppendThatIsGivenUpWhileTheStoreIsReadDidNotHappen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Store: memory.New()}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		store.is.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := c.Append(ctx, "s", stream.Any, plain("a")...); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("%v", err)
		}
		store.is.Store(false)
		_, err := c.Append(t.Context(), "s", stream.NoStream, plain("b")...)
		check(t, err)
	})
}

// deaf is a store that does not answer who reads keys.
type deaf struct {
	*memory.Store
	is atomic.Bool
}

func (d *deaf) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if d.is.Load() {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnavailable, context.Cause(ctx))
	}
	return d.Store.List(ctx, prefix, after, limit)
}

func TestWhatDoesNotExistCannotBeArchived(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", stream.NoStream, plain("a")...)
		check(t, err)
		var invalid *eventlog.InvalidError
		if err := c.Archive(t.Context(), "s", stream.NoStream); !errors.As(err, &invalid) {
			t.Errorf("archive a stream that is not to exist: %v", err)
		}
		if s, err := c.State(t.Context(), "s"); err != nil || s.Archived {
			t.Errorf("%+v, %v", s, err)
		}
	})
}
