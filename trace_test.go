package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// spans is a Tracer that keeps what it is told. A span is a number, and its traceparent is that
// number.
type spans struct {
	mu    sync.Mutex // guards all
	all   []span
	ended map[int]error
}

type span struct {
	name   string
	parent int
	info   eventlog.SpanInfo
}

type spanKey struct{}

func (s *spans) Start(ctx context.Context, name string, info eventlog.SpanInfo) (context.Context, func(error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parent, _ := ctx.Value(spanKey{}).(int)
	s.all = append(s.all, span{name, parent, info})
	id := len(s.all)
	return context.WithValue(ctx, spanKey{}, id), func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.ended == nil {
			s.ended = make(map[int]error)
		}
		s.ended[id] = err
	}
}

func (s *spans) Inject(ctx context.Context) []batch.RecordHeader {
	id, is := ctx.Value(spanKey{}).(int)
	if !is {
		return nil
	}
	return []batch.RecordHeader{{Key: eventlog.TraceParent, Value: fmt.Append(nil, id)}}
}

// ending returns what a span ended with, and whether it has.
func (s *spans) ending(id int) (err error, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err, ended = s.ended[id]
	return err, ended
}

// find returns the spans of a name, by id.
func (s *spans) find(name string) map[int]span {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[int]span{}
	for i, sp := range s.all {
		if sp.name == name {
			found[i+1] = sp
		}
	}
	return found
}

func TestSpansOfAHandlerEndWithItsError(t *testing.T) {
	tracer := &spans{}
	w := newSite(t, "memory").open(t, weir.Options{Tracer: tracer, Logger: discard})
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "bad", "panics", "good")
	bad, panics := errors.New("bad"), errors.New("panics")
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Retry: weir.Retry{Attempts: 1}, DeadLetter: weir.Discard, Handler: func(ctx context.Context, e weir.Event) error {
		switch string(e.Value) {
		case "bad":
			return bad
		case "panics":
			panic(panics)
		}
		return got.note(ctx, e)
	}})
	got.wait(t, 1)
	committed(t, w, "g")
	for _, name := range []string{"handle", "deliver"} {
		ends := map[error]int{}
		for id := range tracer.find(name) {
			err := tracer.end(id)
			for _, is := range []error{bad, panics} {
				if errors.Is(err, is) {
					err = is
				}
			}
			ends[err]++
		}
		if ends[bad] != 1 || ends[panics] != 1 || ends[nil] != 1 || len(ends) != 3 {
			t.Errorf("the spans %q ended with %v", name, ends)
		}
	}
}

// end is what a span ended with.
func (s *spans) end(id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended[id]
}

func TestATraceGoesFromThePublisherThroughItsHandlers(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		tracer := &spans{}
		w := s.open(t, weir.Options{Tracer: tracer})
		ensure(t, w, "first", 1)
		ensure(t, w, "second", 1)
		var got seen
		consume(t, w, weir.Subscription{Group: "a", Topics: []string{"first"}, Handler: func(ctx context.Context, e weir.Event) error {
			_, err := w.Publish(ctx, weir.Event{Topic: "second", Value: e.Value})
			return err
		}})
		consume(t, w, weir.Subscription{Group: "b", Topics: []string{"second"}, Handler: got.note})
		ctx, end := tracer.Start(t.Context(), "request", eventlog.SpanInfo{})
		if _, err := w.Publish(ctx, events("first", "v")...); err != nil {
			t.Fatal(err)
		}
		end(nil)
		got.wait(t, 1)

		// From the last handler back to the request: handle, deliver, and by a link to publish.
		group := "b"
		at := 0
		for id, sp := range tracer.find("handle") {
			if sp.info.Group == group {
				at = id
			}
		}
		var path []string
		for at != 0 {
			tracer.mu.Lock()
			sp := tracer.all[at-1]
			tracer.mu.Unlock()
			path = append(path, strings.TrimSpace(sp.name+" "+sp.info.Topic))
			switch {
			case len(sp.info.Links) > 0:
				if _, err := fmt.Sscan(sp.info.Links[0].Parent, &at); err != nil {
					t.Fatalf("span %+v: %v", sp, err)
				}
			default:
				at = sp.parent
			}
		}
		if got, want := strings.Join(path, " ← "), "handle second ← deliver second ← publish second ← handle first ← deliver first ← publish first ← request"; got != want {
			t.Errorf("the trace is\n%s, want\n%s", got, want)
		}
	})
}

// What a transaction publishes has a span of its own, and whoever gets the events is led to it.
func TestATransactionsEventsHaveASpan(t *testing.T) {
	s := newSite(t, "postgres")
	tracer := &spans{}
	w := s.open(t, weir.Options{Tracer: tracer})
	ensure(t, w, "orders", 1)
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	inTx(t, w, s.url, func(_ string, publish func(...weir.Event) error) bool {
		if err := publish(events("orders", "1", "2")...); err != nil {
			t.Error(err)
		}
		return true
	})
	publishes := tracer.find("publish")
	if len(publishes) != 2 {
		t.Errorf("%d spans for two publications: %v", len(publishes), publishes)
	}
	for id, sp := range publishes {
		err, ended := tracer.ending(id)
		if sp.info.Topic != "orders" || sp.info.Records != 2 || !ended || err != nil {
			t.Errorf("span %+v, ended: %v, with %v", sp, ended, err)
		}
	}
	for _, e := range got.wait(t, 4) {
		parent, _ := e.Header(eventlog.TraceParent)
		id, err := strconv.Atoi(string(parent))
		if _, is := publishes[id]; !is || err != nil {
			t.Errorf("event %s leads to span %q, and the publications are %v", e.Value, parent, publishes)
		}
	}
	tx := brokenTx{errors.New("no connection")}
	if err := w.PublishTx(t.Context(), tx, events("orders", "3")...); !errors.Is(err, tx.err) {
		t.Error(err)
	}
	for id := range tracer.find("publish") {
		if err, _ := tracer.ending(id); !errors.Is(err, tx.err) && publishes[id].name == "" {
			t.Errorf("the span of a publication that failed ended with %v", err)
		}
	}
}

// brokenTx is a transaction that does nothing but fail.
type brokenTx struct{ err error }

func (f brokenTx) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, f.err
}
