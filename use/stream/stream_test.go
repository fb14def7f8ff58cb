package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

func TestEventsAreReadByVersionAndByCategory(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		at := time.UnixMilli(1_700_000_000_123)
		first := stream.NewEvent{ID: "1", Type: "placed", Data: []byte("a"), Time: at, Metadata: []batch.RecordHeader{{Key: stream.ContentType, Value: []byte("text/plain")}}}
		got, err := c.Append(t.Context(), "order/1%", stream.NoStream, first)
		check(t, err)
		if want := (stream.Appended{First: 0, Version: 1}); got != want {
			t.Errorf("the first append: %+v, want %+v", got, want)
		}
		got, err = c.Append(t.Context(), "order/1%", 1, plain("b", "c", "d")...)
		check(t, err)
		if want := (stream.Appended{First: 1, Version: 4}); got != want {
			t.Errorf("the second append: %+v, want %+v", got, want)
		}
		_, err = c.Append(t.Context(), "order", stream.Any, plain("x")...)
		check(t, err)

		_, elsewhere := another(t, reopen)
		for name, c := range map[string]*stream.Category{"here": c, "elsewhere": elsewhere} {
			if got := read(t, c, "order/1%", stream.Range{}); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
				t.Errorf("%s: the stream has %q", name, got)
			}
			for e, err := range c.Events(t.Context(), "order/1%", stream.Range{To: 1}) {
				check(t, err)
				if e.Stream != "order/1%" || e.ID != "1" || e.Type != "placed" || !e.Time.Equal(at) || len(e.Metadata) != 1 || string(e.Metadata[0].Value) != "text/plain" {
					t.Errorf("%s: the first event is %+v", name, e)
				}
			}
			if got := read(t, c, "order/2", stream.Range{}); got != nil {
				t.Errorf("%s: a stream that does not exist has %q", name, got)
			}
			state, err := c.State(t.Context(), "order/1%")
			check(t, err)
			if want := (stream.State{Version: 4, Exists: true}); state != want {
				t.Errorf("%s: the state is %+v, want %+v", name, state, want)
			}
		}
		var all []string
		for _, in := range records(t, p.log, "orders") {
			versions := make(map[string]int)
			for _, r := range in {
				all = append(all, string(r.Value))
				if want := fmt.Sprint(versions[string(r.Key)]); string(r.Headers[2].Value) != want || r.Headers[2].Key != stream.HeaderVersion {
					t.Errorf("record %q of stream %q has the version %s, want %s", r.Value, r.Key, r.Headers[2].Value, want)
				}
				versions[string(r.Key)]++
			}
		}
		if slices.Sort(all); !slices.Equal(all, []string{"a", "b", "c", "d", "x"}) {
			t.Errorf("the category has %q", all)
		}
	})
}

func TestAnAppendNeedsTheExpectedVersion(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		_, err := c.Append(t.Context(), "two", 0, plain("a", "b")...)
		check(t, err)
		_, err = c.Append(t.Context(), "gone", 0, plain("a", "b")...)
		check(t, err)
		_, err = c.Delete(t.Context(), "gone", 2)
		check(t, err)
		for _, want := range []struct {
			stream   string
			expected stream.Expected
			actual   int64 // of the conflict; -1: there is none
			exists   bool
		}{
			{"none", 1, 0, false}, {"none", stream.Exists, 0, false},
			{"none0", 0, -1, false}, {"noneAny", stream.Any, -1, false}, {"noneNo", stream.NoStream, -1, false},
			{"two", 0, 2, true}, {"two", 1, 2, true}, {"two", 3, 2, true}, {"two", 1 << 62, 2, true}, {"two", stream.NoStream, 2, true},
			{"gone", 0, 2, false}, {"gone", 1, 2, false}, {"gone", stream.Exists, 2, false},
			{"two", 2, -1, false}, {"two", stream.Exists, -1, false}, {"two", stream.Any, -1, false},
			{"gone", stream.NoStream, -1, false},
		} {
			_, err := elsewhere.Append(t.Context(), want.stream, want.expected, plain("more")...)
			var conflict *stream.ConflictError
			switch {
			case want.actual < 0 && err != nil:
				t.Errorf("%s at %v: %v", want.stream, want.expected, err)
			case want.actual >= 0 && (!errors.As(err, &conflict) || conflict.Actual != want.actual || conflict.Exists != want.exists || !errors.Is(err, stream.ErrConflict)):
				t.Errorf("%s at %v: %v, want a conflict at %d, exists %v", want.stream, want.expected, err, want.actual, want.exists)
			}
		}
		if got := read(t, c, "two", stream.Range{}); !slices.Equal(got, []string{"a", "b", "more", "more", "more"}) {
			t.Errorf("two has %q", got)
		}
		if got := read(t, c, "gone", stream.Range{}); !slices.Equal(got, []string{"more"}) {
			t.Errorf("gone has %q", got)
		}
	})
}

func TestTheSameEventsAreAppendedOnce(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		for name, expected := range map[string][2]stream.Expected{
			"version":   {0, 0},
			"any":       {stream.Any, stream.Any},
			"no stream": {stream.NoStream, stream.NoStream},
			"both":      {stream.NoStream, stream.Any},
		} {
			both := func(c *stream.Category, expected stream.Expected, duplicate bool) {
				t.Helper()
				got, err := c.Append(t.Context(), name, expected, named(name+"a", name+"b")...)
				check(t, err)
				if want := (stream.Appended{First: 0, Version: 2, Duplicate: duplicate}); got != want {
					t.Errorf("%s: %+v, want %+v", name, got, want)
				}
			}
			both(c, expected[0], false)
			both(c, expected[1], true)
			_, err := c.Append(t.Context(), name, 2, plain("c")...)
			check(t, err)
			both(elsewhere, expected[1], true)
			if got := read(t, c, name, stream.Range{}); len(got) != 3 {
				t.Errorf("%s has %q", name, got)
			}
			other := named(name+"a", name+"b")
			other[1].Data = []byte("other")
			if _, err := elsewhere.Append(t.Context(), name, expected[0], other...); !errors.Is(err, stream.ErrIDReused) {
				t.Errorf("%s, other content: %v, want ErrIDReused", name, err)
			}
		}
		if _, err := c.Append(t.Context(), "version", 0, named("versiona", "c")...); !errors.Is(err, stream.ErrConflict) {
			t.Errorf("some of the ids and others: %v, want a conflict", err)
		}
	})
}

func TestSeveralStreamsAreAppendedToOrNone(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		everystore.RefusedOnShards(t, "an append to categories on two shards")
		p, c := orders(t, reopen)
		other, err := p.CreateCategory(t.Context(), stream.Spec{Name: "payments", Partitions: 1})
		check(t, err)
		both := func(first, second stream.Expected, name string) error {
			_, err := p.AppendAll(t.Context(), stream.Part{Category: c, Stream: "a", Expected: first, Events: named(name)}, stream.Part{Category: other, Stream: "a", Expected: second, Events: named(name, name+"'")})
			return err
		}
		check(t, both(0, stream.NoStream, "1"))
		check(t, both(1, 2, "2"))
		check(t, both(1, 2, "2")) // again
		var conflict *stream.ConflictError
		if err := both(2, 3, "3"); !errors.As(err, &conflict) || conflict.Category != "payments" || conflict.Actual != 4 {
			t.Errorf("the second is not as expected: %v", err)
		}
		if err := both(3, 4, "3"); !errors.As(err, &conflict) || conflict.Category != "orders" || conflict.Actual != 2 {
			t.Errorf("the first is not as expected: %v", err)
		}
		check(t, both(stream.Any, stream.Any, "4"))
		check(t, both(stream.Any, stream.Any, "4"))
		if got := read(t, c, "a", stream.Range{}); !slices.Equal(got, []string{"1", "2", "4"}) {
			t.Errorf("the one has %q", got)
		}
		if got := read(t, other, "a", stream.Range{}); !slices.Equal(got, []string{"1", "1'", "2", "2'", "4", "4'"}) {
			t.Errorf("the other has %q", got)
		}
		_, err = p.AppendAll(t.Context(), stream.Part{Category: c, Stream: "a", Expected: stream.Any, Events: named("4")}, stream.Part{Category: c, Stream: "b", Expected: stream.Any, Events: named("5")})
		if !errors.Is(err, stream.ErrIDReused) {
			t.Errorf("one of them was appended before, the other not: %v, want ErrIDReused", err)
		}
		_, err = p.AppendAll(t.Context(), stream.Part{Category: c, Stream: "c", Events: named("6")}, stream.Part{Category: c, Stream: "c", Events: named("7")})
		var invalid *eventlog.InvalidError
		if !errors.As(err, &invalid) {
			t.Errorf("one stream twice: %v", err)
		}
	})
}

func TestPartsOfAStreamAreRead(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		for i := range 10 {
			name := fmt.Sprint(i)
			_, err := c.Append(t.Context(), "s", stream.Expected(i), stream.NewEvent{Type: []string{"even", "odd"}[i%2], Data: []byte(name), Time: time.UnixMilli(int64(1000 * i))})
			check(t, err)
		}
		for _, want := range []struct {
			r   stream.Range
			get string
		}{
			{stream.Range{}, "0123456789"},
			{stream.Range{From: 3}, "3456789"}, {stream.Range{From: 9}, "9"}, {stream.Range{From: 10}, ""}, {stream.Range{From: 11}, ""},
			{stream.Range{To: 3}, "012"}, {stream.Range{To: 30}, "0123456789"}, {stream.Range{From: 2, To: 4}, "23"}, {stream.Range{From: 4, To: 4}, ""},
			{stream.Range{Backward: true}, "9876543210"}, {stream.Range{Backward: true, From: 7}, "987"}, {stream.Range{Backward: true, From: 2, To: 4}, "32"},
			{stream.Range{Types: []string{"odd"}}, "13579"}, {stream.Range{Types: []string{"odd"}, Backward: true, To: 5}, "31"}, {stream.Range{Types: []string{"none"}}, ""},
			{stream.Range{Until: time.UnixMilli(4000)}, "01234"}, {stream.Range{Until: time.UnixMilli(4999)}, "01234"},
		} {
			if got := strings.Join(read(t, c, "s", want.r), ""); got != want.get {
				t.Errorf("%+v: %q, want %q", want.r, got, want.get)
			}
		}
		var invalid *eventlog.InvalidError
		for _, r := range []stream.Range{{From: -1}, {To: -1}, {From: 3, To: 2}} {
			for _, err := range c.Events(t.Context(), "s", r) {
				if !errors.As(err, &invalid) {
					t.Errorf("%+v: %v, want an InvalidError", r, err)
				}
			}
		}
	})
}

// counting counts the calls of a store.
type counting struct {
	eventlog.Store
	commits, lists atomic.Int64
	hold           atomic.Pointer[chan struct{}] // commits wait until it is closed
}

func (s *counting) Unwrap() eventlog.Store { return s.Store }

func (c *counting) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	c.commits.Add(1)
	if hold := c.hold.Load(); hold != nil {
		<-*hold
	}
	return c.Store.Commit(ctx, flush)
}

func (c *counting) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "stream/") {
		c.lists.Add(1)
	}
	return c.Store.List(ctx, prefix, after, limit)
}

// What a read costs depends on what it reads: not on the stream's length, nor on how many others
// there are.
func TestAReadCostsWhatItReads(t *testing.T) {
	store := &counting{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	many := make([]string, 5000)
	_, err := c.Append(t.Context(), "long", 0, plain(many...)...)
	check(t, err)
	for i := range 100 {
		_, err := c.Append(t.Context(), fmt.Sprintf("other %d", i), 0, plain(many[:10]...)...)
		check(t, err)
	}
	for _, want := range []struct {
		name  string
		r     stream.Range
		n     int
		calls int64
	}{
		{"the last hundred", stream.Range{From: 4900}, 100, 2},
		{"the last ten, the newest first", stream.Range{From: 4990, Backward: true}, 10, 2},
		{"ten of the middle", stream.Range{From: 2500, To: 2510}, 10, 2},
		{"all", stream.Range{}, 5000, 6},
	} {
		before := store.lists.Load()
		if got := len(read(t, c, "long", want.r)); got != want.n {
			t.Errorf("%s: %d events, want %d", want.name, got, want.n)
		}
		if calls := store.lists.Load() - before; calls != want.calls {
			t.Errorf("%s: %d store calls, want %d", want.name, calls, want.calls)
		}
	}
}

// A large event among many small ones does not make a store call that reads them all.
func TestAReadIsBoundedWhereOneEventIsLarge(t *testing.T) {
	store := &counting{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	_, err := c.Append(t.Context(), "s", 0, plain(make([]string, 5000)...)...)
	check(t, err)
	_, err = c.Append(t.Context(), "s", stream.Any, plain(strings.Repeat("x", 1_000_000))...)
	check(t, err)
	if got := len(read(t, c, "s", stream.Range{})); got != 5001 {
		t.Errorf("%d events", got)
	}
	if calls := store.lists.Load(); calls < 5001*1_000_000/(64<<20) {
		t.Errorf("%d store calls: if all events were as large as the largest, each would read more than 64 MiB", calls)
	}
}

func TestAppendsThatWaitShareAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counting{Store: memory.New()}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		_, err := c.Append(t.Context(), "s", 0, plain("begin")...)
		check(t, err)
		hold := make(chan struct{})
		store.hold.Store(&hold)
		before := store.commits.Load()
		var appending sync.WaitGroup
		versions := make([]int64, 100)
		for i := range versions {
			appending.Go(func() {
				got, err := c.Append(t.Context(), "s", stream.Any, plain(fmt.Sprint(i))...)
				if err != nil {
					t.Error(err)
				}
				versions[i] = got.First
			})
		}
		synctest.Wait() // the first is on its way, and the others wait for it
		close(hold)
		appending.Wait()
		if commits := store.commits.Load() - before; commits > 2 { // one if the first had not begun
			t.Errorf("100 appends took %d commits, want at most 2", commits)
		}
		slices.Sort(versions)
		for i, v := range versions {
			if v != int64(i+1) {
				t.Fatalf("versions %v", versions)
			}
		}
	})
}

// Of many who expect one version one is right; the others hear at which version the stream was.
func TestOneOfManyThatExpectAVersionWins(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, here := orders(t, reopen)
		_, there := another(t, reopen)
		for round := range 10 {
			var won atomic.Int64
			var appending sync.WaitGroup
			for i := range 20 {
				c := []*stream.Category{here, there}[i%2]
				appending.Go(func() {
					_, err := c.Append(t.Context(), "s", stream.Expected(round), plain(fmt.Sprint(round))...)
					var conflict *stream.ConflictError
					switch {
					case err == nil:
						won.Add(1)
					case !errors.As(err, &conflict) || conflict.Actual != int64(round+1):
						t.Errorf("round %d: %v", round, err)
					}
				})
			}
			if appending.Wait(); won.Load() != 1 {
				t.Errorf("round %d: %d appends succeeded", round, won.Load())
			}
		}
		if got := strings.Join(read(t, here, "s", stream.Range{}), ""); got != "0123456789" {
			t.Errorf("the stream has %q", got)
		}
	})
}

func TestStreamsAreListedByName(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		for _, name := range []string{"b/2", "a", "b/1", "b/3", "c"} {
			_, err := c.Append(t.Context(), name, 0, plain("x")...)
			check(t, err)
		}
		_, err := c.Delete(t.Context(), "b/3", 1)
		check(t, err)
		for _, want := range []struct {
			prefix, after string
			limit         int
			names         string
		}{
			{"", "", 10, "a b/1 b/2 b/3 c"}, {"b/", "", 10, "b/1 b/2 b/3"}, {"b/", "b/1", 1, "b/2"}, {"", "b/3", 10, "c"}, {"d", "", 10, ""},
		} {
			list, err := c.List(t.Context(), want.prefix, want.after, want.limit)
			check(t, err)
			var got []string
			for _, s := range list {
				got = append(got, s.Stream)
				if s.Version != 1 || s.Exists == (s.Stream == "b/3") {
					t.Errorf("listed: %+v", s)
				}
			}
			if strings.Join(got, " ") != want.names {
				t.Errorf("%+v: %q", want, got)
			}
		}
		if _, err := c.List(t.Context(), "", "", 0); err == nil {
			t.Error("a limit of 0 is taken")
		}
	})
}
