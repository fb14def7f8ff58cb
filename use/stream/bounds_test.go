package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/stream"
)

// slow takes a second for each read of keys under a prefix, and then fails if it shall.
type slow struct {
	*memory.Store
	prefix string
	err    error
	on     atomic.Bool
}

func (s *slow) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if s.on.Load() && strings.HasPrefix(prefix, s.prefix) {
		time.Sleep(time.Second) // fake time
		if s.err != nil {
			return nil, s.err
		}
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *slow) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if s.on.Load() && strings.HasPrefix(keys[0], s.prefix) {
		time.Sleep(time.Second) // fake time
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

// A page whose events are about many subjects reads their keys side by side.
func TestThePageOfManySubjectsReadsTheirKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New(), prefix: "stream/subject/"}
		_, c := orders(t, func(*testing.T) eventlog.Store { return store })
		var events []stream.NewEvent
		for i := range 64 {
			events = append(events, stream.NewEvent{Type: "T", Data: []byte("secret"), Subject: fmt.Sprint(i)})
		}
		_, err := c.Append(t.Context(), "s", 0, events...)
		check(t, err)
		store.on.Store(true)
		began := time.Now()
		page, err := c.Page(t.Context(), "s", stream.Range{}, stream.PageLimit{Events: 100})
		if err != nil || len(page.Events) != 64 || string(page.Events[63].Data) != "secret" {
			t.Errorf("%d events, %v", len(page.Events), err)
		}
		if took := time.Since(began); took > 10*time.Second { // a call takes a second
			t.Errorf("it took %v", took)
		}
	})
}

// However many streams' retention fails, a few of them are named.
func TestTheErrorsOfRetentionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: memory.New(), prefix: "stream/event/", err: errors.New("damaged")}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		for i := range 40 {
			_, err := c.Append(t.Context(), fmt.Sprint(i), 0, plain("a")...)
			check(t, err)
		}
		_, err := c.Delete(t.Context(), "0", 1)
		check(t, err)
		check(t, c.SetRetention(t.Context(), stream.Retention{Age: time.Hour}))
		var said bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		store.on.Store(true)
		go func() {
			done <- stream.New(p.log, stream.Config{Logger: slog.New(slog.NewTextHandler(&said, nil))}).Run(ctx)
		}()
		time.Sleep(9 * time.Minute) // fake time
		cancel()
		check(t, <-done)
		if n := strings.Count(said.String(), "retention of stream"); n != 10 || !strings.Contains(said.String(), "29 streams more") {
			t.Errorf("%d are named: %s", n, said.String())
		}
	})
}

// Who appends to several streams, and always comes second, waits longer and longer.
func TestAnAppendToSeveralStreamsThatLosesPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: memory.New(), prefix: "stream/head/"}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		lost := 0
		var appendOne func()
		appendOne = func() { // after each read of the head
			if lost++; lost <= 20 {
				_, err := c.Append(t.Context(), "s", stream.Any, plain("b")...)
				check(t, err)
				store.after.Store(&appendOne)
			}
		}
		store.after.Store(&appendOne)
		began := time.Now()
		_, err := p.AppendAll(t.Context(), stream.Part{Category: c, Stream: "s", Expected: stream.Any, Events: plain("a")})
		check(t, err)
		if took := time.Since(began); lost < 20 || took < 100*time.Millisecond {
			t.Errorf("it lost %d times in %v", lost, took)
		}
	})
}

// Who gives up between two tries knows that nothing was appended.
func TestAnAppendToSeveralStreamsThatGivesUpIsToldThatNothingHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &hooked{Store: memory.New()}
		p, c := orders(t, func(*testing.T) eventlog.Store { return store })
		store.prefix = "stream/head/" + c.ID().String() + "/s" // the heads of the two streams are read side by side, in any order
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var appendOne func()
		appendOne = func() { // after each read of the head
			if ctx.Err() == nil {
				_, err := c.Append(t.Context(), "s", stream.Any, plain("b")...)
				check(t, err)
				store.after.Store(&appendOne)
			}
		}
		store.after.Store(&appendOne)
		_, err := p.AppendAll(ctx, stream.Part{Category: c, Stream: "s", Expected: stream.Any, Events: plain("a")}, stream.Part{Category: c, Stream: "t", Expected: stream.Any, Events: plain("a")})
		if !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want ErrUnavailable, as the time is over", err)
		}
		if state, err := c.State(t.Context(), "t"); state.Exists || err != nil {
			t.Errorf("the other stream: %+v, %v", state, err)
		}
	})
}

// An append to many streams reads what it needs of them together, however many they are.
func TestAnAppendToManyStreamsReadsThemTogether(t *testing.T) {
	store := &plural{Store: memory.New()}
	p, c := orders(t, func(*testing.T) eventlog.Store { return store })
	parts := make([]stream.Part, 100)
	for i := range parts {
		parts[i] = stream.Part{Category: c, Stream: fmt.Sprint("s", i), Expected: stream.NoStream}
		for j := range 10 {
			parts[i].Events = append(parts[i].Events, stream.NewEvent{
				ID: fmt.Sprint(i, "/", j), Type: "T", Data: []byte("d"), Tags: []string{fmt.Sprint("tag ", i*10+j)}, Subject: fmt.Sprint("subject ", i*10+j),
			})
		}
	}
	before := store.calls.Load()
	if _, err := p.AppendAll(t.Context(), parts...); err != nil {
		t.Fatal(err)
	}
	if n := store.calls.Load() - before; n > 5 { // heads, tags, subjects' keys; an entry with those; the append
		t.Errorf("%d store calls, want 5", n)
	}
	parts[99].Events = slices.Clone(parts[99].Events)
	parts[99].Events[0].ID = "another" // it is neither new nor the same: found by the ids
	before = store.calls.Load()
	if _, err := p.AppendAll(t.Context(), parts...); !errors.Is(err, stream.ErrIDReused) {
		t.Errorf("%v, want ErrIDReused", err)
	}
	if n := store.calls.Load() - before; n > 5 {
		t.Errorf("%d store calls to refuse it, want 5 at most", n)
	}
}

// plural counts the calls of a store.
type plural struct {
	eventlog.Store
	calls atomic.Int64
}

func (s *plural) Unwrap() eventlog.Store { return s.Store }

func (s *plural) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.calls.Add(1)
	return s.Store.Commit(ctx, flush)
}

func (s *plural) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if strings.HasPrefix(prefix, "stream/") && !strings.HasPrefix(prefix, "stream/gone/") {
		s.calls.Add(1)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *plural) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, keys, maxBytes)
}

// What would be one huge entry is refused, with the limit and the number.
func TestAnAppendHasABoundOfTagsAndSubjects(t *testing.T) {
	p, c := orders(t, func(*testing.T) eventlog.Store { return memory.New() })
	events := func(n, tags, different int) (all []stream.NewEvent) {
		for i := range n {
			e := stream.NewEvent{Type: "T"}
			for j := range tags {
				e.Tags = append(e.Tags, fmt.Sprint((i*tags+j)%different))
			}
			all = append(all, e)
		}
		return all
	}
	subjects := make([]stream.NewEvent, 1001)
	for i := range subjects {
		subjects[i] = stream.NewEvent{Type: "T", Subject: fmt.Sprint(i)}
	}
	half := events(500, 16, 16)
	for _, r := range []struct {
		parts []stream.Part
		want  string
	}{
		{[]stream.Part{{Events: events(1001, 1, 1001)}}, `invalid number of different tags "1001": one append has at most 1000: append fewer events in one call`},
		{[]stream.Part{{Events: events(626, 16, 16)}}, `invalid number of tags of all events "10016": one append has at most 10000: append fewer events in one call`},
		{[]stream.Part{{Events: half}, {Events: half}}, `invalid number of tags of all events "16000": one append has at most 10000: append fewer events in one call`},
		{[]stream.Part{{Events: subjects}}, `invalid number of different subjects "1001": one append has at most 1000: append fewer events in one call`},
		{[]stream.Part{{Events: events(1000, 1, 1000)}}, ""},
		{[]stream.Part{{Events: events(625, 16, 16)}}, ""},
	} {
		for i := range r.parts {
			r.parts[i].Category, r.parts[i].Stream, r.parts[i].Expected = c, fmt.Sprint("s", i), stream.Any
		}
		_, err := p.AppendAll(t.Context(), r.parts...)
		if err == nil && r.want != "" || err != nil && (r.want == "" || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("%v, want %q", err, r.want)
		}
		if len(r.parts) > 1 {
			continue
		}
		_, err = c.Append(t.Context(), "alone", stream.Any, r.parts[0].Events...)
		if err == nil && r.want != "" || err != nil && (r.want == "" || !strings.Contains(err.Error(), r.want)) {
			t.Errorf("one stream: %v, want %q", err, r.want)
		}
	}
}
