package stream_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// A sweep read that a stream is deleted, and then the store lost that: the stream exists, and so do
// its events.
func TestASweepRemovesNothingOfAStreamWhoseDeletionTheStoreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: memory.New(), prefix: "stream/event/"}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		_, err := c.Append(t.Context(), "s", 0, plain("a", "b")...)
		check(t, err)
		restore := store.Backup()
		_, err = c.Delete(t.Context(), "s", 2)
		check(t, err)
		rewind := func() {
			restore(false)
			time.Sleep(time.Second) // the log polls, and enters the other incarnation
		}
		store.before.Store(&rewind)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(5 * time.Minute)
		cancel()
		check(t, <-done)
		if got := read(t, c, "s", stream.Range{}); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the stream has %q", got)
		}
	})
}

// A store lost the end of a stream while it was read, or its events were deleted: that is no
// damage, and the reader is told.
func TestAReaderIsToldThatTheStreamChanged(t *testing.T) {
	store := memory.New()
	p, c := orders(t, func(*testing.T) eventlog.Store { return store })
	_, err := c.Append(t.Context(), "s", 0, plain(make([]string, 1000)...)...)
	check(t, err)
	restore := store.Backup()
	_, err = c.Append(t.Context(), "s", 1000, plain(make([]string, 1000)...)...)
	check(t, err)
	change := func(change func()) {
		t.Helper()
		n, failed := 0, error(nil)
		for _, failed = range c.Events(t.Context(), "s", stream.Range{}) {
			if failed != nil {
				break
			}
			if n++; n == 1 {
				change()
			}
		}
		if n != 1000 || !errors.Is(failed, stream.ErrChanged) {
			t.Errorf("read %d events and the error %v, want 1000 and ErrChanged", n, failed)
		}
	}
	change(func() {
		changed := p.log.IncarnationChanged()
		restore(false)
		<-changed
	})
	_, err = c.Append(t.Context(), "s", 1000, plain(make([]string, 1000)...)...)
	check(t, err)
	change(func() {
		check(t, c.Forget(t.Context(), "s", 1500))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		for left := 2000; left > 500; {
			list, err := p.log.List(t.Context(), "stream/event/", "", 2000)
			check(t, err)
			left = len(list)
		}
		cancel()
		check(t, <-done)
	})
}
