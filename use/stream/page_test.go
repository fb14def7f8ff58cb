package stream_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// inPages reads a range page by page, and tells how many pages there were.
func inPages(t *testing.T, c *stream.Category, name string, r stream.Range, limit stream.PageLimit) (versions []int64, pages int) {
	t.Helper()
	for {
		p, err := c.Page(t.Context(), name, r, limit)
		check(t, err)
		if pages++; len(p.Events) > limit.Events || pages > 1000 {
			t.Fatalf("page %d has %d events, at most %d were asked for", pages, len(p.Events), limit.Events)
		}
		for _, e := range p.Events {
			versions = append(versions, e.Version)
		}
		if !p.More {
			return versions, pages
		}
		if r.Backward {
			r.To = p.Next
		} else {
			r.From = p.Next
		}
	}
}

func TestPagesOfAStreamAreTheStream(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		var events []stream.NewEvent
		for i := range 25 {
			events = append(events, stream.NewEvent{Type: fmt.Sprint("type ", i%3), Data: []byte(strings.Repeat("x", 100*i)), Time: time.UnixMilli(int64(i))})
		}
		_, err := c.Append(t.Context(), "a", stream.NoStream, events...)
		check(t, err)
		check(t, c.Forget(t.Context(), "a", 2))
		for _, r := range []stream.Range{{}, {From: 5, To: 19}, {Types: []string{"type 1"}}, {Until: time.UnixMilli(9)}, {From: 25}, {From: 99}, {From: 3, To: 3}} {
			for _, most := range []int{1, 7, 1000} {
				for _, r.Backward = range []bool{false, true} {
					for _, room := range []int64{1, 1 << 20} {
						var want []int64
						for e, err := range c.Events(t.Context(), "a", r) {
							check(t, err)
							want = append(want, e.Version)
						}
						limit := stream.PageLimit{Events: most, Room: func(context.Context, int64) (int64, error) { return room, nil }}
						if got, _ := inPages(t, c, "a", r, limit); !slices.Equal(got, want) {
							t.Errorf("%+v in pages of %d events and %d bytes is %v, want %v", r, most, room, got, want)
						}
					}
				}
			}
		}
	})
}

func TestAPageKeepsToItsRoom(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		var events []stream.NewEvent
		for range 20 {
			events = append(events, stream.NewEvent{Type: "t", Data: make([]byte, 10_000)})
		}
		_, err := c.Append(t.Context(), "a", stream.NoStream, events...)
		check(t, err)
		for room, want := range map[int64]int{1: 1, 10_000: 1, 50_000: 4, 1 << 20: 20} {
			called := 0
			p, err := c.Page(t.Context(), "a", stream.Range{}, stream.PageLimit{Events: 1000, Room: func(_ context.Context, largest int64) (int64, error) {
				if called++; largest < 10_000 || largest > 11_000 {
					t.Errorf("the largest event has %d bytes", largest)
				}
				return room, nil
			}})
			check(t, err)
			if len(p.Events) != want || called != 1 || p.More != (want < 20) || p.State.Version != 20 {
				t.Errorf("with room for %d bytes there are %d events, want %d; %d calls", room, len(p.Events), want, called)
			}
		}
		full := errors.New("no room")
		_, err = c.Page(t.Context(), "a", stream.Range{}, stream.PageLimit{Events: 1, Room: func(context.Context, int64) (int64, error) { return 0, full }})
		if !errors.Is(err, full) {
			t.Errorf("%v", err)
		}
	})
}

// Metadata takes more memory than its bytes.
func TestAPageCountsWhatMetadataTakes(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		for range 10 {
			_, err := c.Append(t.Context(), "a", stream.Any, stream.NewEvent{Type: "t", Metadata: slices.Repeat([]batch.RecordHeader{{Key: "k"}}, 10_000)})
			check(t, err)
		}
		const least = 10_000 * 40 // bytes of a header without its name and value
		p, err := c.Page(t.Context(), "a", stream.Range{}, stream.PageLimit{Events: 1000, Room: func(_ context.Context, largest int64) (int64, error) {
			if largest < least {
				t.Errorf("the largest event is said to take %d bytes, at least %d are needed", largest, least)
			}
			return 2 << 20, nil
		}})
		check(t, err)
		if n := len(p.Events); n < 1 || n > 2<<20/least {
			t.Errorf("a page with room for 2 MiB has %d events", n)
		}
	})
}

// lists notes how many events were asked for in each call.
type lists struct {
	*memory.Store
	mu    sync.Mutex
	asked []int
}

func (l *lists) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "stream/event/") {
		l.mu.Lock()
		l.asked = append(l.asked, limit)
		l.mu.Unlock()
	}
	return l.Store.List(ctx, prefix, after, limit)
}

func (l *lists) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if len(keys) > 0 && strings.HasPrefix(keys[0], "stream/event/") {
		l.mu.Lock()
		l.asked = append(l.asked, len(keys))
		l.mu.Unlock()
	}
	return l.Store.Get(ctx, keys, maxBytes)
}

// Whether events are there already is found out without reading much of a stream whose events are
// others, and large.
func TestAConflictReadsLittle(t *testing.T) {
	store := &lists{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	var small []stream.NewEvent
	for i := range 500 {
		small = append(small, stream.NewEvent{ID: fmt.Sprint("small ", i), Type: "t"})
	}
	_, err := c.Append(t.Context(), "small", 0, small...)
	check(t, err)
	done, err := c.Append(t.Context(), "small", 0, small...)
	if err != nil || !done.Duplicate || len(store.asked) > 12 {
		t.Errorf("appended again: %+v, %v; read in parts of %v", done, err, store.asked)
	}
	for range 30 {
		_, err := c.Append(t.Context(), "large", stream.Any, stream.NewEvent{ID: "", Type: "t", Data: make([]byte, 900_000)})
		check(t, err)
	}
	store.asked = nil
	if _, err := c.Append(t.Context(), "large", 0, small[:30]...); !errors.Is(err, stream.ErrConflict) || !slices.Equal(store.asked, []int{1}) {
		t.Errorf("%v; read in parts of %v", err, store.asked)
	}
}

// A page of rare events ends before the whole stream has been read for it.
func TestAPageLooksAtABoundedPartOfTheStream(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		events := make([]stream.NewEvent, 10_000)
		for i := range events {
			events[i].Type = "t"
		}
		version := int64(0)
		for range 2 {
			done, err := c.Append(t.Context(), "a", stream.Any, events[:5000]...)
			check(t, err)
			version = done.Version
		}
		for range 2 {
			done, err := c.Append(t.Context(), "a", stream.Expected(version), events[:5000]...)
			check(t, err)
			version = done.Version
		}
		got, pages := inPages(t, c, "a", stream.Range{Types: []string{"rare"}}, stream.PageLimit{Events: 10})
		if len(got) != 0 || pages != 2 {
			t.Errorf("%d events in %d pages", len(got), pages)
		}
	})
}

// markless is a store that does not take the key that makes a topic a category.
type markless struct{ *memory.Store }

func (s markless) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, put := range e.Puts {
			if strings.HasPrefix(put.Key, "stream/category/") {
				return nil, errors.New("out of order")
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// It is not said that nothing happened: the topic is there.
func TestACategoryThatIsHalfMadeIsToldAsUnsure(t *testing.T) {
	p := begin(t, markless{memory.New()})
	if _, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders"}); !errors.Is(err, eventlog.ErrUnsure) {
		t.Errorf("%v", err)
	}
	if _, err := p.Category(t.Context(), "orders"); !errors.Is(err, stream.ErrUnknownCategory) {
		t.Errorf("%v", err)
	}
}

func TestPagesThatCannotBe(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		for _, limit := range []int{-1, 0, 1001} {
			var invalid *eventlog.InvalidError
			if _, err := c.Page(t.Context(), "a", stream.Range{}, stream.PageLimit{Events: limit}); !errors.As(err, &invalid) {
				t.Errorf("a page of %d events: %v", limit, err)
			}
		}
		p, err := c.Page(t.Context(), "never", stream.Range{}, stream.PageLimit{Events: 1})
		if err != nil || p.More || p.State.Exists || len(p.Events) != 0 {
			t.Errorf("a page of a stream that never was: %+v, %v", p, err)
		}
	})
}
