package stream_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

func TestADeletedStreamIsGoneAndItsVersionsGoOn(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		_, err := c.Append(t.Context(), "s", 0, plain("a", "b")...)
		check(t, err)
		check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 2, Data: []byte("ab")}))
		var conflict *stream.ConflictError
		if _, err := elsewhere.Delete(t.Context(), "s", 1); !errors.As(err, &conflict) || conflict.Actual != 2 {
			t.Errorf("deleted at another version: %v", err)
		}
		done, err := elsewhere.Delete(t.Context(), "s", 2)
		check(t, err)
		if want := (stream.Appended{First: 2, Version: 2}); done != want {
			t.Errorf("deleted: %+v, want %+v", done, want)
		}
		for _, expected := range []stream.Expected{2, stream.Any, stream.NoStream} {
			done, err := c.Delete(t.Context(), "s", expected)
			check(t, err)
			if !done.Duplicate {
				t.Errorf("deleted again, at %v: %+v", expected, done)
			}
		}
		for _, c := range []*stream.Category{c, elsewhere} {
			if got := read(t, c, "s", stream.Range{}); got != nil {
				t.Errorf("a deleted stream has %q", got)
			}
			if _, is, err := c.Snapshot(t.Context(), "s", math.MaxInt64); is || err != nil {
				t.Errorf("a deleted stream has a snapshot; %v", err)
			}
			state, err := c.State(t.Context(), "s")
			check(t, err)
			if want := (stream.State{Version: 2, First: 2}); state != want {
				t.Errorf("the state is %+v, want %+v", state, want)
			}
		}
		got, err := elsewhere.Append(t.Context(), "s", stream.NoStream, plain("c", "d")...)
		check(t, err)
		if want := (stream.Appended{First: 2, Version: 4}); got != want {
			t.Errorf("begun again: %+v, want %+v", got, want)
		}
		if got := read(t, c, "s", stream.Range{}); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("begun again, it has %q", got)
		}
		if s, is, err := c.Snapshot(t.Context(), "s", math.MaxInt64); is || err != nil {
			t.Errorf("begun again, it has the snapshot %q of before; %v", s.Data, err)
		}
		var values []string
		for _, in := range records(t, p.log, "orders") {
			for _, r := range in {
				if r.Value == nil {
					values = append(values, "deleted")
				} else {
					values = append(values, string(r.Value))
				}
			}
		}
		if want := []string{"a", "b", "deleted", "c", "d"}; !slices.Equal(values, want) {
			t.Errorf("the category has %q, want %q", values, want)
		}
	})
}

func TestForgottenEventsAreGoneAndOthersKeepTheirVersions(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", 0, plain("a", "b", "c", "d")...)
		check(t, err)
		for v := range int64(4) {
			check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: v + 1, Data: []byte{byte(v)}}))
		}
		check(t, c.Forget(t.Context(), "s", 2))
		check(t, c.Forget(t.Context(), "s", 1)) // they are gone
		if got := read(t, c, "s", stream.Range{}); !slices.Equal(got, []string{"c", "d"}) {
			t.Errorf("the stream has %q", got)
		}
		for most, want := range map[int64]int64{1: -1, 2: 2, 3: 3, 100: 4} {
			s, is, err := c.Snapshot(t.Context(), "s", most)
			check(t, err)
			if is != (want >= 0) || is && s.Version != want {
				t.Errorf("the snapshot up to %d: version %d, %v; want %d", most, s.Version, is, want)
			}
		}
		check(t, c.Forget(t.Context(), "s", 100))
		if got := read(t, c, "s", stream.Range{}); got != nil {
			t.Errorf("the stream has %q", got)
		}
		_, err = c.Append(t.Context(), "s", 4, plain("e")...)
		check(t, err)
		if got := read(t, c, "s", stream.Range{}); !slices.Equal(got, []string{"e"}) {
			t.Errorf("the stream has %q", got)
		}
		check(t, c.Forget(t.Context(), "none", 3))
		if err := c.Forget(t.Context(), "s", -1); err == nil {
			t.Error("a negative version is taken")
		}
	})
}

func TestSnapshotsAreOfOneVersion(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, err := c.Append(t.Context(), "s", 0, plain("a", "b", "c")...)
		check(t, err)
		if _, is, err := c.Snapshot(t.Context(), "s", math.MaxInt64); is || err != nil {
			t.Errorf("a snapshot that nobody saved; %v", err)
		}
		check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 1, Data: []byte("one")}))
		check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 3}))
		check(t, c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 3, Data: []byte("three")}))
		for most, want := range map[int64]string{0: "", 1: "one", 2: "one", 3: "three", math.MaxInt64: "three"} {
			s, is, err := c.Snapshot(t.Context(), "s", most)
			check(t, err)
			if is != (want != "") || string(s.Data) != want {
				t.Errorf("up to %d: %q, want %q", most, s.Data, want)
			}
		}
		var invalid *eventlog.InvalidError
		for _, v := range []int64{-1, 0, 4, math.MaxInt64, math.MinInt64} {
			if err := c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: v}); !errors.As(err, &invalid) {
				t.Errorf("a snapshot at version %d: %v, want an InvalidError", v, err)
			}
		}
		if err := c.SaveSnapshot(t.Context(), "none", stream.Snapshot{Version: 1}); !errors.As(err, &invalid) {
			t.Errorf("a snapshot of a stream that does not exist: %v", err)
		}
		if err := c.SaveSnapshot(t.Context(), "s", stream.Snapshot{Version: 2, Data: make([]byte, 2<<20)}); !errors.Is(err, eventlog.ErrTooLarge) {
			t.Errorf("a snapshot of 2 MiB: %v", err)
		}
	})
}

// After a sweep nothing is left of deleted streams, of forgotten events and of old ids but the
// heads.
func TestASweepLeavesWhatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, c := orders(t, func(*testing.T) eventlog.Store { return memory.New() })
		for _, s := range []string{"gone", "cut", "kept"} {
			_, err := c.Append(t.Context(), s, stream.NoStream, named(s)...)
			check(t, err)
			_, err = c.Append(t.Context(), s, 1, plain(make([]string, 1200)...)...)
			check(t, err)
			check(t, c.SaveSnapshot(t.Context(), s, stream.Snapshot{Version: 5}))
		}
		_, err := c.Delete(t.Context(), "gone", stream.Any)
		check(t, err)
		check(t, c.Forget(t.Context(), "cut", 1000))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		time.Sleep(idAge + 2*time.Minute)
		cancel()
		check(t, <-done)
		left := make(map[string]int)
		check(t, p.log.ListAll(t.Context(), "stream/", func(kv eventlog.KeyValue) error {
			parts := strings.Split(kv.Key, "/")
			left[parts[1]+" "+parts[min(3, len(parts)-1)]]++
			return nil
		}))
		for key := range left {
			if strings.HasPrefix(key, "category ") {
				delete(left, key)
			}
		}
		want := map[string]int{"head gone": 1, "head cut": 1, "head kept": 1, "event cut": 201, "event kept": 1201, "snapshot kept": 1}
		if len(left) != len(want) {
			t.Errorf("left are %v, want %v", left, want)
		}
		for key, n := range want {
			if left[key] != n {
				t.Errorf("left of %s: %d keys, want %d", key, left[key], n)
			}
		}
		for s, n := range map[string]int{"gone": 0, "cut": 201, "kept": 1201} {
			if got := len(read(t, c, s, stream.Range{})); got != n {
				t.Errorf("%s has %d events, want %d", s, got, n)
			}
		}
	})
}
