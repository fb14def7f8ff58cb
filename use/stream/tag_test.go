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
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// tagged is an event with tags, whose type is its name.
func tagged(name string, tags ...string) stream.NewEvent {
	return stream.NewEvent{ID: name, Type: name, Tags: tags}
}

// types are those of events.
func types(events []stream.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.Type)
	}
	return list
}

func TestADecisionOnTagsIsAppendedUnlessTheyMoved(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		for i, e := range []stream.NewEvent{
			tagged("defined", "course:1"), tagged("enrolled", "student:7"), tagged("subscribed", "course:1", "student:7"), tagged("other", "course:2"), tagged("left", "student:7"),
		} {
			_, err := c.Append(t.Context(), fmt.Sprint("stream-", i), stream.NoStream, e)
			check(t, err)
		}
		events, bound, err := elsewhere.Tagged(t.Context(), "course:1", "student:7")
		check(t, err)
		if got := types(events); len(got) != 4 || slices.Index(got, "subscribed") < slices.Index(got, "defined") || slices.Index(got, "subscribed") < slices.Index(got, "enrolled") || got[3] != "left" {
			t.Errorf("the events are %q", got)
		}
		if want := []string{"course:1", "student:7"}; !slices.Equal(events[slices.Index(types(events), "subscribed")].Tags, want) {
			t.Errorf("the tags of %+v, want %q", events, want)
		}
		_, err = c.Append(t.Context(), "stream-3", 1, tagged("unrelated", "course:2"))
		check(t, err)
		again := tagged("again", "course:1", "student:7")
		done, err := elsewhere.AppendWithin(t.Context(), bound, "stream-9", stream.NoStream, again)
		if err != nil || done.Version != 1 {
			t.Fatalf("%+v, %v", done, err)
		}
		for _, expected := range []stream.Expected{stream.NoStream, 0} {
			if done, err = c.AppendWithin(t.Context(), bound, "stream-9", expected, again); err != nil || !done.Duplicate {
				t.Errorf("the same again: %+v, %v", done, err)
			}
		}
		if _, err := c.AppendWithin(t.Context(), bound, "stream-10", stream.Any, tagged("late", "course:1")); !errors.Is(err, stream.ErrBoundary) {
			t.Errorf("after an event with the tags: %v, want ErrBoundary", err)
		}
		if state, err := c.State(t.Context(), "stream-10"); err != nil || state.Exists {
			t.Errorf("what was refused left %+v, %v", state, err)
		}
	})
}

// Of many who take the last seats at the same time, in two processes, so many get one as there are.
func TestSeatsAreNotTakenTwice(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		const seats, students = 3, 12
		var all sync.WaitGroup
		for i := range students {
			all.Go(func() {
				c := []*stream.Category{c, elsewhere}[i%2]
				me := fmt.Sprint("student:", i)
				for {
					events, bound, err := c.Tagged(t.Context(), "course:1", me)
					if err != nil {
						t.Error(err)
						return
					}
					if len(events) >= seats {
						return
					}
					_, err = c.AppendWithin(t.Context(), bound, me, stream.Any, stream.NewEvent{Type: "subscribed", Tags: []string{"course:1", me}})
					if err == nil {
						return
					}
					if !errors.Is(err, stream.ErrBoundary) {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		events, _, err := c.Tagged(t.Context(), "course:1")
		check(t, err)
		if len(events) != seats {
			t.Errorf("%d students have the %d seats", len(events), seats)
		}
	})
}

func TestTagsGoWithTheirEvents(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		for i := range 3 {
			_, err := c.Append(t.Context(), "s", stream.Any, tagged(fmt.Sprint("old-", i), "t"))
			check(t, err)
		}
		_, err := p.AppendAll(t.Context(), stream.Part{Category: c, Stream: "u", Expected: stream.NoStream, Events: []stream.NewEvent{tagged("a", "t", "x"), tagged("b", "t")}},
			stream.Part{Category: c, Stream: "v", Expected: stream.NoStream, Events: []stream.NewEvent{tagged("c", "t")}})
		check(t, err)
		_, err = c.Delete(t.Context(), "s", 3)
		check(t, err)
		_, err = c.Append(t.Context(), "s", 3, tagged("new", "t"))
		check(t, err)
		is := func() {
			t.Helper()
			events, _, err := c.Tagged(t.Context(), "t")
			check(t, err)
			if got := types(events); !slices.Equal(got, []string{"a", "b", "c", "new"}) {
				t.Errorf("the events are %q", got)
			}
		}
		is()
		sweeping(t, p)
		for end := time.Now().Add(20 * time.Second); ; {
			left, err := p.log.List(t.Context(), "stream/tagged/", "", 100)
			check(t, err)
			if len(left) == 5 { // a has two
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d keys of tags are left, want 5", len(left))
			}
		}
		is()
	})
}

// What is kept of a tag goes with the last event that has it. Later events with the tag, and
// boundaries, are as if there had been none.
func TestATagGoesWithItsLastEvent(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		for i := range 3 {
			_, err := c.Append(t.Context(), "s", stream.Any, tagged(fmt.Sprint("old-", i), "alone", "shared", fmt.Sprint("order:", i)))
			check(t, err)
		}
		_, err := c.Append(t.Context(), "u", stream.Any, tagged("stays", "shared"))
		check(t, err)
		_, before, err := c.Tagged(t.Context(), "alone")
		check(t, err)
		_, err = c.Delete(t.Context(), "s", 3)
		check(t, err)
		sweeping(t, p)
		for end := time.Now().Add(20 * time.Second); ; {
			left, err := p.log.List(t.Context(), "stream/tag/", "", 100)
			check(t, err)
			left = slices.DeleteFunc(left, func(kv eventlog.KeyValue) bool { return strings.HasSuffix(kv.Key, "/") }) // of no tag
			if len(left) == 1 && strings.HasSuffix(left[0].Key, "/shared") {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d tags are left, want 1", len(left))
			}
		}
		if _, err := c.AppendWithin(t.Context(), before, "v", stream.Any, tagged("late", "alone")); !errors.Is(err, stream.ErrBoundary) {
			t.Errorf("an append within a boundary from before the deletion: %v", err)
		}
		for _, is := range []string{"a", "b"} {
			_, now, err := c.Tagged(t.Context(), "alone")
			check(t, err)
			_, err = c.AppendWithin(t.Context(), now, "v", stream.Any, tagged(is, "alone", "shared"))
			check(t, err)
		}
		for tag, want := range map[string][]string{"alone": {"a", "b"}, "shared": {"stays", "a", "b"}} {
			events, _, err := c.Tagged(t.Context(), tag)
			check(t, err)
			if got := types(events); !slices.Equal(got, want) {
				t.Errorf("the events with the tag %s are %q, want %q", tag, got, want)
			}
		}
	})
}

// A boundary of a tag without events does not hold any more after such an event came and went,
// although the tag has no events again. Neither does its text, nor one from before weir knew that.
func TestABoundaryKnowsThatAnEventCameAndWent(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		var old []string
		for round := range 2 { // after the first one a tag has vanished before
			_, before, err := c.Tagged(t.Context(), "t")
			check(t, err)
			name := fmt.Sprint("s", round)
			_, err = c.Append(t.Context(), name, stream.NoStream, tagged(name, "t"))
			check(t, err)
			_, err = c.Delete(t.Context(), name, 1)
			check(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			swept := make(chan error)
			go func() { swept <- p.Run(ctx) }()
			for there := true; there; {
				left, err := p.log.List(t.Context(), "stream/tag/", "", 100)
				check(t, err)
				there = slices.ContainsFunc(left, func(kv eventlog.KeyValue) bool { return strings.HasSuffix(kv.Key, "/t") })
			}
			cancel()
			check(t, <-swept)
			for _, text := range append(old, before.String()) {
				sent, err := elsewhere.Boundary(text)
				check(t, err)
				if _, err := elsewhere.AppendWithin(t.Context(), sent, "v", stream.Any, tagged("late", "t")); !errors.Is(err, stream.ErrBoundary) {
					t.Errorf("round %d: within a boundary from before the event: %v, want ErrBoundary", round, err)
				}
			}
			old = append(old, before.String())
		}
		_, now, err := c.Tagged(t.Context(), "t", "u")
		check(t, err)
		if _, err := elsewhere.AppendWithin(t.Context(), now, "v", stream.NoStream, tagged("in time", "t")); err != nil {
			t.Errorf("within a boundary from after it: %v", err)
		}
	})
}

func TestTagsThatCannotBeAreRefused(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(t *testing.T) eventlog.Store) {
		_, c := orders(t, reopen)
		var invalid *eventlog.InvalidError
		many := make([]string, 17)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for _, tags := range [][]string{{""}, {strings.Repeat("x", 256)}, {"\xff"}, {"a\nb"}, {"a", "a"}, many} {
			if _, err := c.Append(t.Context(), "s", stream.Any, tagged("e", tags...)); !errors.As(err, &invalid) {
				t.Errorf("append with %.40q: %v, want an *InvalidError", tags, err)
			}
			if _, _, err := c.Tagged(t.Context(), tags...); !errors.As(err, &invalid) {
				t.Errorf("read %.40q: %v, want an *InvalidError", tags, err)
			}
		}
		if _, _, err := c.Tagged(t.Context()); !errors.As(err, &invalid) {
			t.Errorf("read no tags: %v, want an *InvalidError", err)
		}
		if events, bound, err := c.Tagged(t.Context(), "nothing has it"); err != nil || len(events) != 0 {
			t.Errorf("%v, %v", events, err)
		} else if _, err := c.AppendWithin(t.Context(), bound, "s", stream.NoStream, tagged("e", "nothing has it")); err != nil {
			t.Errorf("within a tag that nothing has: %v", err)
		}
	})
}

// A boundary that was sent as a text holds in another process, and only for its category.
func TestABoundaryIsAText(t *testing.T) {
	onStores(t, func(t *testing.T, reopen func(*testing.T) eventlog.Store) {
		p, c := orders(t, reopen)
		_, elsewhere := another(t, reopen)
		tags := []string{"a/b", "é %2F", strings.Repeat("é", 127)}
		_, err := c.Append(t.Context(), "s", stream.Any, tagged("first", tags...))
		check(t, err)
		tags = append(tags, "unused")
		_, bound, err := c.Tagged(t.Context(), tags...)
		check(t, err)
		sent := func(b stream.Boundary) stream.Boundary {
			t.Helper()
			got, err := elsewhere.Boundary(b.String())
			check(t, err)
			return got
		}
		_, err = elsewhere.AppendWithin(t.Context(), sent(bound), "t", stream.Any, tagged("within", tags[0]))
		check(t, err)
		for _, tag := range tags {
			_, bound, err := c.Tagged(t.Context(), tag)
			check(t, err)
			_, err = c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "first", Tags: []string{tag}})
			check(t, err)
			if _, err = elsewhere.AppendWithin(t.Context(), sent(bound), "u", stream.Any, tagged("late", tag)); !errors.Is(err, stream.ErrBoundary) {
				t.Errorf("%q: %v, want ErrBoundary", tag, err)
			}
			_, bound, err = c.Tagged(t.Context(), tag)
			check(t, err)
			_, err = elsewhere.AppendWithin(t.Context(), sent(bound), "u", stream.Any, stream.NewEvent{Type: "in time", Tags: []string{tag}})
			check(t, err)
		}
		other, err := p.CreateCategory(t.Context(), stream.Spec{Name: "others", Partitions: 1})
		check(t, err)
		var invalid *eventlog.InvalidError
		if _, err := other.Boundary(bound.String()); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "another category") {
			t.Errorf("of another category: %v", err)
		}
	})
}

func TestATagOfTooManyEventsIsRefused(t *testing.T) {
	p := begin(t, memory.New())
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 1, Settings: map[string]string{"max.message.bytes": "100000000"}})
	check(t, err)
	const most = 10_000
	events := make([]stream.NewEvent, most)
	for i := range events {
		events[i] = stream.NewEvent{Type: "e", Tags: []string{"t"}}
	}
	_, err = c.Append(t.Context(), "s", stream.Any, events...)
	check(t, err)
	_, err = c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "e", Tags: []string{"t", "u"}})
	check(t, err)
	var invalid *eventlog.InvalidError
	if _, _, err := c.Tagged(t.Context(), "t"); !errors.As(err, &invalid) || !strings.Contains(err.Error(), fmt.Sprintf("more than %d events", most)) {
		t.Errorf("%v, want an *InvalidError", err)
	}
	if events, _, err := c.Tagged(t.Context(), "u"); err != nil || len(events) != 1 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

func TestTaggedEventsStayWithinTheirMemory(t *testing.T) {
	store := &eventReads{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	e := tagged("large", "t")
	e.Data = make([]byte, 10_000)
	_, err := c.Append(t.Context(), "s", stream.Any, e)
	check(t, err)
	events, _, take, err := c.TaggedUpTo(t.Context(), 12_000, nil, "t")
	if err != nil || len(events) != 1 || take < 10_000 || take > 12_000 {
		t.Errorf("%d events, which take %d: %v", len(events), take, err)
	}
	for range 500 {
		e := tagged("large", "t")
		e.ID, e.Data = "", make([]byte, 10_000)
		_, err := c.Append(t.Context(), "s", stream.Any, e)
		check(t, err)
	}
	store.n.Store(0)
	if _, _, _, err := c.TaggedUpTo(t.Context(), 100_000, nil, "t"); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if n := store.n.Load(); n > 1 {
		t.Errorf("events were read with %d store calls, of which 10 fit", n)
	}
	store.n.Store(0)
	if _, _, _, err := c.TaggedUpTo(t.Context(), 50_000, nil, "t"); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("%v, want ErrTooLarge", err)
	}
	if n := store.n.Load(); n > 0 {
		t.Errorf("events were read with %d store calls, of which not even empty ones fit", n)
	}
}

// The events of many streams, and the keys of many subjects, are read with few store calls.
func TestTaggedEventsOfManyStreamsAreReadTogether(t *testing.T) {
	store := &eventReads{Store: memory.New()}
	_, c := orders(t, func(*testing.T) eventlog.Store { return store })
	const streams = 200
	for i := range streams {
		e := tagged(fmt.Sprint("E", i), "t")
		e.Subject, e.Data = fmt.Sprint("somebody ", i), []byte(fmt.Sprint("data ", i))
		_, err := c.Append(t.Context(), fmt.Sprint("s", i), stream.Any, e)
		check(t, err)
	}
	check(t, c.ForgetSubject(t.Context(), "somebody 7"))
	store.n.Store(0)
	store.all.Store(0)
	events, _, err := c.Tagged(t.Context(), "t")
	check(t, err)
	if n, all := store.n.Load(), store.all.Load(); n > 1 || all > 30 {
		t.Errorf("%d store calls, %d of them for events", all, n)
	}
	if len(events) != streams {
		t.Fatalf("%d of %d events", len(events), streams)
	}
	for i, e := range events {
		want := fmt.Sprint("data ", i)
		if i == 7 {
			want = ""
		}
		if e.Stream != fmt.Sprint("s", i) || string(e.Data) != want || e.Erased != (i == 7) {
			t.Errorf("event %d: %q of stream %q, erased: %v", i, e.Data, e.Stream, e.Erased)
		}
	}
}

// eventReads counts the store calls that read keys, and among them those that read events.
type eventReads struct {
	*memory.Store
	n, all atomic.Int64
}

func (s *eventReads) count(key string) {
	s.all.Add(1)
	if strings.HasPrefix(key, "stream/event/") {
		s.n.Add(1)
	}
}

func (s *eventReads) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.count(prefix)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *eventReads) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.count(keys[0])
	return s.Store.Get(ctx, keys, maxBytes)
}

// An append that a boundary refuses tells nothing of where the stream is: others that wait with it
// are judged by what the store has.
func TestARefusalByTagsIsNoLookAtTheStream(t *testing.T) {
	store := &hooked{Store: memory.New(), prefix: "stream/tag/"}
	p := begin(t, store)
	c, err := p.CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 1})
	check(t, err)
	elsewhere, err := begin(t, store).Category(t.Context(), "orders")
	check(t, err)
	_, bound, err := c.Tagged(t.Context(), "t")
	check(t, err)
	_, err = c.Append(t.Context(), "s", stream.Any, stream.NewEvent{Type: "e"}) // this process remembers it at version 1
	check(t, err)
	_, err = c.Append(t.Context(), "x", stream.Any, tagged("moves the tag", "t"))
	check(t, err)
	const waiting = 2
	results := make(chan error, waiting)
	meanwhile := func() {
		for range 2 {
			_, err := elsewhere.Append(context.Background(), "s", stream.Any, stream.NewEvent{Type: "other"})
			check(t, err)
		}
		began := make(chan struct{}, waiting)
		go func() {
			began <- struct{}{}
			_, err := c.AppendWithin(context.Background(), bound, "s", stream.Any, stream.NewEvent{Type: "e"})
			results <- err
		}()
		<-began
		go func() {
			began <- struct{}{}
			_, err := c.Append(context.Background(), "s", 3, stream.NewEvent{Type: "e"})
			results <- err
		}()
		<-began
	}
	store.before.Store(&meanwhile)
	if _, err = c.AppendWithin(t.Context(), bound, "s", stream.Any, stream.NewEvent{Type: "e"}); !errors.Is(err, stream.ErrBoundary) {
		t.Errorf("%v, want ErrBoundary", err)
	}
	for range waiting {
		if err := <-results; err != nil && !errors.Is(err, stream.ErrBoundary) {
			t.Errorf("the stream is at version 3, and an append at version 3 was refused: %v", err)
		}
	}
}

// However many tags the events of an append have, their heads are read together.
func TestTheTagsOfAnAppendAreReadTogether(t *testing.T) {
	store := &hooked{Store: memory.New(), prefix: "stream/tag/"}
	c, err := begin(t, store).CreateCategory(t.Context(), stream.Spec{Name: "orders", Partitions: 1})
	check(t, err)
	var events []stream.NewEvent
	for e := range 31 {
		var tags []string
		for n := range 16 {
			tags = append(tags, fmt.Sprintf("%d-%d", e, n))
		}
		events = append(events, tagged(fmt.Sprint("E", e), tags...))
	}
	_, err = c.Append(t.Context(), "s", stream.Any, events...)
	check(t, err)
	if n := store.reads.Load(); n > 1 {
		t.Errorf("an append with 496 tags read tags in %d store calls; want 1", n)
	}
}
