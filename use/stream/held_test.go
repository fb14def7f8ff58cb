package stream_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// held is a store in which a transaction can hold all streams.
type held struct {
	*memory.Store
	isHeld  atomic.Bool
	refused atomic.Int64
	during  func(attempt int64) // called while an attempt that is refused is in flight
}

func (h *held) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	outcomes := make([]eventlog.Outcome, len(entries))
	for i, e := range entries {
		outcomes[i].Err = eventlog.ErrHeld
		h.refused.Add(1)
		if !h.isHeld.Load() || len(e.Checks) == 0 || !e.Checks[0].Holdable {
			h.refused.Add(-1)
			some, err := h.Store.Commit(ctx, []eventlog.Entry{e})
			if err != nil {
				return nil, err
			}
			outcomes[i] = some[0]
		} else if h.during != nil {
			h.during(h.refused.Load())
		}
	}
	return outcomes, nil
}

// Callers of a held stream wait as long as they like, each for itself, and nothing is appended for
// a caller that gave up.
func TestCallersWaitForAHeldStreamAndGiveUpOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{Store: memory.New()}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		store.isHeld.Store(true)
		type result struct {
			done stream.Appended
			err  error
		}
		ask := func(name string, patience time.Duration, results chan result) {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				done, err := c.Append(ctx, "a", stream.Any, named(name)...)
				results <- result{done, err}
			}()
		}
		gone, waits := make(chan result), make(chan result)
		ask("first", time.Second, gone)
		ask("second", 10*time.Second, gone)
		ask("third", time.Hour, waits)
		began := time.Now()
		for _, after := range []time.Duration{time.Second, 10 * time.Second} {
			r := <-gone
			if !errors.Is(r.err, eventlog.ErrHeld) || errors.Is(r.err, eventlog.ErrUnsure) || !strings.Contains(r.err.Error(), "nothing was appended") || time.Since(began).Round(100*time.Millisecond) != after {
				t.Errorf("after %v: %+v", time.Since(began), r)
			}
		}
		if n := store.refused.Load(); n < 50 || n > 1000 {
			t.Errorf("%d attempts in 10 seconds", n)
		}
		if _, err := p.AppendAll(timeout(t, time.Second), stream.Part{Category: c, Stream: "b", Events: named("x"), Expected: stream.Any}); !errors.Is(err, eventlog.ErrHeld) {
			t.Errorf("AppendAll: %v", err)
		}
		// Whether these conflict is known only when the stream is free: SQL may have begun it.
		if err := c.Archive(timeout(t, time.Second), "c", stream.Exists); !errors.Is(err, eventlog.ErrHeld) {
			t.Errorf("archive a stream that may have been begun with SQL: %v", err)
		}
		if _, err := c.Append(timeout(t, time.Second), "d", 1, named("x")...); !errors.Is(err, eventlog.ErrHeld) {
			t.Errorf("append to a stream that may be longer: %v", err)
		}
		if _, err := p.AppendAll(timeout(t, time.Second), stream.Part{Category: c, Stream: "e", Events: named("x"), Expected: 3}); !errors.Is(err, eventlog.ErrHeld) {
			t.Errorf("AppendAll to a stream that may be longer: %v", err)
		}
		store.isHeld.Store(false)
		if r := <-waits; r.err != nil || r.done.Version != 1 {
			t.Errorf("the stream is free: %+v", r)
		}
		if got := read(t, c, "a", stream.Range{}); len(got) != 1 || got[0] != "third" {
			t.Errorf("the stream has %q", got)
		}
	})
}

func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// A caller that gives up while an attempt is in flight waits for its outcome, and what it wanted is
// not tried again.
func TestNothingIsAppendedForACallerThatGaveUpDuringAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &held{Store: memory.New()}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		ctx, cancel := context.WithCancel(t.Context())
		store.during = func(attempt int64) {
			if attempt == 3 {
				cancel()
				time.Sleep(time.Millisecond)
				store.isHeld.Store(false)
			}
		}
		store.isHeld.Store(true)
		if _, err := c.Append(ctx, "a", stream.Any, named("gone")...); !errors.Is(err, eventlog.ErrHeld) || errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("the caller gave up: %v", err)
		}
		if done, err := c.Append(t.Context(), "a", stream.Any, named("there")...); err != nil || done.First != 0 {
			t.Errorf("the next append: %+v %v", done, err)
		}
	})
}
