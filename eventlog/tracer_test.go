package eventlog_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func TestNoTracerCostsNothing(t *testing.T) {
	tracer := eventlog.Traced(nil)
	ctx := t.Context()
	allocs := testing.AllocsPerRun(100, func() {
		span, end := tracer.Start(ctx, "publish", eventlog.SpanInfo{Topic: "orders", Records: 1})
		if tracer.Inject(span) != nil {
			t.Error("headers of no span")
		}
		end(nil)
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// noted is a tracer that keeps what it hears. The span in a context is a traceparent.
type noted struct {
	mu    sync.Mutex // guards spans
	spans []eventlog.SpanInfo
	errs  []error
}

type spanKey struct{}

func (n *noted) Start(ctx context.Context, name string, s eventlog.SpanInfo) (context.Context, func(error)) {
	if name != "flush" {
		return ctx, func(error) {}
	}
	return ctx, func(err error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.spans, n.errs = append(n.spans, s), append(n.errs, err)
	}
}

func (n *noted) Inject(ctx context.Context) []batch.RecordHeader {
	parent, ok := ctx.Value(spanKey{}).(string)
	if !ok {
		return nil
	}
	return []batch.RecordHeader{{Key: eventlog.TraceParent, Value: []byte(parent)}}
}

func (n *noted) last() (eventlog.SpanInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.spans[len(n.spans)-1], n.errs[len(n.errs)-1]
}

func TestAFlushIsLinkedToThoseWhoSubmitted(t *testing.T) {
	store := &failing{Store: memory.New()}
	tracer := new(noted)
	log := open(t, store, eventlog.Config{Tracer: tracer})
	p := topic(t, log, "orders", 1).Partitions[0]
	traced := context.WithValue(t.Context(), spanKey{}, "me")
	for name, submit := range map[string]func(context.Context) error{
		"loose":  func(ctx context.Context) error { _, err := log.Publish(ctx, p, batch.Record{}); return err },
		"sealed": func(ctx context.Context) error { _, err := log.Append(ctx, sealed(t, p, 1, -1, 0, 0)); return err },
	} {
		if err := submit(traced); err != nil {
			t.Fatal(err)
		}
		if s, err := tracer.last(); err != nil || !slices.Equal(s.Links, []eventlog.TraceContext{{Parent: "me"}}) || s.Records != 1 || s.Entries != 1 {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
		if err := submit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, _ := tracer.last(); len(s.Links) > 0 {
			t.Errorf("%s of nobody's span: links %v", name, s.Links)
		}
	}
	store.fail(nil, []error{eventlog.ErrUnsure})
	if _, err := log.Publish(traced, p, batch.Record{}); err == nil {
		t.Fatal("an answer was lost, and nobody said so")
	}
	if _, err := tracer.last(); err == nil {
		t.Error("the span of the failed flush has no error")
	}
}

// Headers may be as long as a record: what is too long to be a trace is not copied.
func TestTracesOfAnyLengthAreNotTaken(t *testing.T) {
	parent, state := strings.Repeat("p", 55), strings.Repeat("s", 512)
	for _, c := range []struct {
		parent, state string
		want          eventlog.TraceContext
	}{
		{parent, state, eventlog.TraceContext{Parent: parent, State: state}},
		{parent, state + "s", eventlog.TraceContext{Parent: parent}},
		{parent + "p", state, eventlog.TraceContext{State: state}},
	} {
		got, is := eventlog.TraceOf([]batch.RecordHeader{{Key: "traceparent", Value: []byte(c.parent)}, {Key: "tracestate", Value: []byte(c.state)}})
		if got != c.want || is != (c.want.Parent != "") {
			t.Errorf("parent of %d bytes and state of %d: %v, %v", len(c.parent), len(c.state), got, is)
		}
	}
}
