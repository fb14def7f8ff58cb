package eventlog

import (
	"context"

	"github.com/weir-log/weir/eventlog/batch"
)

// Tracer makes spans of what happens: publish, flush, mover, deliver, handle, work. weirotel is one
// for OpenTelemetry. Calls may come from many goroutines.
type Tracer interface {
	// Start begins a span, a child of the one in ctx, and returns a context that carries it. The
	// caller calls the returned function once, with the error that the work ended with.
	Start(ctx context.Context, name string, s SpanInfo) (context.Context, func(error))
	// Inject returns the record headers (traceparent, tracestate) that carry the span in ctx; none
	// when there is no span.
	Inject(ctx context.Context) []batch.RecordHeader
}

// SpanInfo is what a span is about. Unknown fields are zero.
type SpanInfo struct {
	Topic   string
	Group   string // the consumer group, of a span about consuming
	Entries int    // how many entries a flush has
	Records int
	Links   []TraceContext // other spans that led to this one, such as the spans that published the records
}

// linksMax bounds the links of a span. It is OpenTelemetry's default limit.
const linksMax = 128

// Link adds the span that record headers carry to Links, if they carry one and Links is not full.
func (s *SpanInfo) Link(headers []batch.RecordHeader) {
	if len(s.Links) >= linksMax {
		return
	}
	if from, is := TraceOf(headers); is {
		s.Links = append(s.Links, from)
	}
}

// TraceContext names a span of any process, as the headers of W3C Trace Context do.
type TraceContext struct {
	Parent string // traceparent
	State  string // tracestate; may be empty
}

// The record headers that carry a TraceContext, named as W3C Trace Context names those of HTTP.
const (
	TraceParent = "traceparent"
	TraceState  = "tracestate"
)

// The longest TraceContext that is taken from a record: the length of a traceparent of version 00,
// and the length up to which W3C Trace Context requires a tracestate to be propagated. A longer
// state is left out.
const (
	traceParentMax = 55
	traceStateMax  = 512
)

// TraceOf returns the span that record headers carry; false if they carry none, or one that is too
// long. The Tracer checks their content.
func TraceOf(headers []batch.RecordHeader) (TraceContext, bool) {
	var tc TraceContext
	for i := range headers {
		switch h := &headers[i]; {
		case h.Key == TraceParent && len(h.Value) <= traceParentMax:
			tc.Parent = string(h.Value)
		case h.Key == TraceState && len(h.Value) <= traceStateMax:
			tc.State = string(h.Value)
		}
	}
	return tc, tc.Parent != ""
}

// untraced is the Tracer if none is configured. It does nothing and allocates nothing.
type untraced struct{}

func (untraced) Start(ctx context.Context, _ string, _ SpanInfo) (context.Context, func(error)) {
	return ctx, endNothing
}

func (untraced) Inject(context.Context) []batch.RecordHeader { return nil }

func endNothing(error) {}

// Untraced reports whether a Tracer returned by Traced does nothing, so that callers can skip
// preparing a SpanInfo.
func Untraced(t Tracer) bool { return t == untraced{} }

// Traced returns t, or a Tracer that does nothing at no cost when t is nil.
func Traced(t Tracer) Tracer {
	if t == nil {
		return untraced{}
	}
	return t
}
