package stream_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// A stream's name may have slashes. What it and an id look like together is not what another stream
// and other ids look like.
func TestAnAppendIsNotTakenForThatOfAStreamWhoseNameLooksLikeIt(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", stream.Any, stream.NewEvent{ID: "x", Type: "t"}, stream.NewEvent{ID: "y", Type: "t"})
		check(t, err)
		done, err := c.Append(t.Context(), "s/1/x", stream.Any, stream.NewEvent{ID: "y", Type: "t", Data: []byte("new")})
		check(t, err)
		if got := read(t, c, "s/1/x", stream.Range{}); done.Duplicate || !slices.Equal(got, []string{"new"}) {
			t.Errorf("appended %+v, and the stream has %q", done, got)
		}
	})
}

// An append of which one event has no id cannot be repeated: no key is kept for it.
func TestOnlyEventsThatAllHaveIDsCostAKey(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", stream.Any, stream.NewEvent{ID: "x", Type: "t"}, stream.NewEvent{Type: "t"})
		check(t, err)
		check(t, p.log.ListAll(t.Context(), "stream/id/", func(kv eventlog.KeyValue) error {
			t.Errorf("there is the key %s", kv.Key)
			return nil
		}))
	})
}

func TestTheHighestExpectedVersionIsAConflict(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", math.MaxInt64, named("a")...)
		if !errors.Is(err, stream.ErrConflict) {
			t.Errorf("got %v, want a conflict", err)
		}
	})
}

// A sweep found that an id is old. Meanwhile another process removed it, and the same events came
// once more: they have a new id.
func TestASweepDoesNotTakeANewIDForTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: memory.New(), prefix: "stream/id/"}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		_, err := c.Append(t.Context(), "s", stream.Any, named("a")...)
		check(t, err)
		time.Sleep(idAge + time.Second)
		again := func() {
			kvs, err := p.log.List(t.Context(), "stream/id/", "", 1)
			check(t, err)
			_, err = p.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kvs[0].Key}}})
			check(t, err)
			_, err = c.Append(t.Context(), "s", stream.Any, named("a")...)
			check(t, err)
		}
		store.after.Store(&again)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		synctest.Wait()
		cancel()
		check(t, <-done)
		got, err := c.Append(t.Context(), "s", stream.Any, named("a")...)
		check(t, err)
		if !got.Duplicate {
			t.Errorf("the same events a moment later were appended once more: %+v", got)
		}
	})
}
