package s3

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// longLinger is the time between two puts of a store that openLingering opens.
const longLinger = 10 * time.Second

// openLingering opens such a store. It is deaf to what key says.
func openLingering(t *testing.T, f *fake, key *atomic.Pointer[string]) *Store {
	t.Helper()
	at := quick
	at.linger = longLinger
	s, err := f.openDeafTo(t.Context(), at, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Callers that give up, and those that find nothing to put or no answer, leave the next put to
// others.
func TestWhoPutsNothingDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		var deaf atomic.Pointer[string] // the commit that cannot be read
		s := openLingering(t, f, &deaf)
		next := time.Now().Add(longLinger)
		mustPublish(t, s, "a")
		want := func(after string) {
			t.Helper()
			if got := s.NextCommit(); !got.Equal(next) {
				t.Errorf("after %s the next put may begin %v later than it could", after, got.Sub(next))
			}
		}
		want("a put")
		for range 20 {
			ctx, giveUp := context.WithTimeout(t.Context(), time.Millisecond)
			err := storetest.Trim(ctx, s, 1, 0)
			giveUp()
			if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
				t.Fatalf("a caller who gave up was told %v, want ErrUnavailable", err)
			}
		}
		want("callers who gave up")
		time.Sleep(time.Until(next))
		if err := storetest.Trim(t.Context(), s, 1, 0); err != nil {
			t.Fatal(err)
		}
		want("a trim of nothing")
		out, err := s.Commit(t.Context(), []eventlog.Entry{{Checks: []eventlog.Check{{Key: "k", Version: 1}}}})
		if err != nil || !errors.Is(out[0].Err, eventlog.ErrStale) {
			t.Fatalf("%+v, %v, want ErrStale", out, err)
		}
		want("a flush of stale entries")
		newest := commitKey(1)
		deaf.Store(&newest)
		if _, err := publish(t, s, "lost"); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatalf("the newest commit cannot be read: %v", err)
		}
		deaf.Store(nil)
		want("a try that came to no put")
		next = time.Now().Add(longLinger)
		mustPublish(t, s, "b")
		if late := time.Now().Add(longLinger).Sub(next); late != 0 {
			t.Errorf("a put that could begin at once was made %v later", late)
		}
		want("the next put")
	})
}

// However many callers trim at a time, they delay others by one put. One that gives up does not
// stop the others.
func TestCallersWhoTrimTogetherPutOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		s := openLingering(t, f, new(atomic.Pointer[string]))
		mustPublish(t, s, "a", "b", "c", "d", "e", "f")
		before := len(f.Keys("commit/"))
		var all sync.WaitGroup
		ctx, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		all.Go(func() {
			if err := storetest.Trim(ctx, s, 1, 6); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrUnsure) {
				t.Errorf("the caller who gave up was told %v, want ErrUnavailable", err)
			}
		})
		synctest.Wait() // it is the first, and waits until it may put
		for to := range eventlog.Offset(5) {
			all.Go(func() {
				if err := storetest.Trim(t.Context(), s, 1, to+1); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := len(f.Keys("commit/")) - before; n != 1 {
			t.Errorf("5 trims at a time were %d commits, want 1", n)
		}
		expect2(t, s, 5, "f")
	})
}
