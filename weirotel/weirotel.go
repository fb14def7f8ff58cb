// Package weirotel makes OpenTelemetry spans and metrics of what weir does. Pass its Tracer to
// weir.Options.Tracer, or to any other option that takes an eventlog.Tracer:
//
//	tracer := weirotel.New(otel.GetTracerProvider(), weirotel.WithMetrics(otel.GetMeterProvider()))
//
// Spans are named by OpenTelemetry's conventions for messaging, such as "publish orders". W3C Trace
// Context in the headers of records links the spans of different processes.
package weirotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// scope is the instrumentation's name: it distinguishes weir's spans from other spans of the
// program.
const scope = "github.com/weir-log/weir"

// Tracer is an eventlog.Tracer whose spans go to OpenTelemetry.
type Tracer struct {
	tracer  trace.Tracer
	metrics *metrics // nil: there are none
}

var _ eventlog.Tracer = (*Tracer)(nil)

// New returns a Tracer whose spans go to the provider.
func New(provider trace.TracerProvider, options ...Option) *Tracer {
	t := &Tracer{tracer: provider.Tracer(scope)}
	for _, o := range options {
		o(t)
	}
	return t
}

// Start implements eventlog.Tracer. Links that are not valid W3C Trace Context are dropped.
func (t *Tracer) Start(ctx context.Context, name string, s eventlog.SpanInfo) (context.Context, func(error)) {
	title := name
	if s.Topic != "" {
		title += " " + s.Topic
	}
	ctx, span := t.tracer.Start(ctx, title, trace.WithSpanKind(kindOf(name)), trace.WithAttributes(attributes(name, s)...), trace.WithLinks(links(s.Links)...))
	began := time.Now()
	return ctx, func(err error) {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
			span.SetAttributes(attribute.String("error.type", errorType(err)))
		}
		span.End()
		if t.metrics != nil {
			t.metrics.ended(ctx, name, s, time.Since(began), err)
		}
	}
}

// Inject implements eventlog.Tracer.
func (t *Tracer) Inject(ctx context.Context) []batch.RecordHeader {
	var h headers
	propagation.TraceContext{}.Inject(ctx, &h)
	return h
}

// The values of messaging.operation.type.
const (
	sending    = "send"
	receiving  = "receive"
	processing = "process"
)

// operationType is that of a span; "": its name is none of the conventions' operations.
func operationType(name string) string {
	switch name {
	case "publish":
		return sending
	case "deliver":
		return receiving
	case "handle", "work":
		return processing
	}
	return ""
}

func kindOf(name string) trace.SpanKind {
	switch operationType(name) {
	case sending:
		return trace.SpanKindProducer
	case receiving, processing:
		return trace.SpanKindConsumer
	}
	return trace.SpanKindInternal
}

// of returns the attributes that spans and metrics have, named by OpenTelemetry's conventions for
// messaging.
func of(name string, s eventlog.SpanInfo) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.String("messaging.system", "weir"), attribute.String("messaging.operation.name", name)}
	if kind := operationType(name); kind != "" {
		all = append(all, attribute.String("messaging.operation.type", kind))
	}
	if s.Topic != "" {
		all = append(all, attribute.String("messaging.destination.name", s.Topic))
	}
	if s.Group != "" {
		all = append(all, attribute.String("messaging.consumer.group.name", s.Group))
	}
	return all
}

// attributes returns those of a span.
func attributes(name string, s eventlog.SpanInfo) []attribute.KeyValue {
	all := of(name, s)
	if s.Records > 0 {
		all = append(all, attribute.Int("messaging.batch.message_count", s.Records))
	}
	if s.Entries > 0 {
		all = append(all, attribute.Int("weir.entries", s.Entries))
	}
	return all
}

func links(of []eventlog.TraceContext) []trace.Link {
	var all []trace.Link
	for _, tc := range of {
		ctx := propagation.TraceContext{}.Extract(context.Background(), remote(tc))
		all = append(all, trace.LinkFromContext(ctx)) // the SDK drops the link if it names no span
	}
	return all
}

// headers is a propagation.TextMapCarrier that collects record headers.
type headers []batch.RecordHeader

func (h *headers) Set(key, value string) {
	*h = append(*h, batch.RecordHeader{Key: key, Value: []byte(value)})
}

func (h *headers) Get(string) string { return "" }
func (h *headers) Keys() []string    { return nil }

// remote is a propagation.TextMapCarrier that reads the trace context of a record.
type remote eventlog.TraceContext

func (r remote) Get(key string) string {
	switch key {
	case eventlog.TraceParent:
		return r.Parent
	case eventlog.TraceState:
		return r.State
	}
	return ""
}

func (r remote) Set(string, string) {}
func (r remote) Keys() []string     { return []string{eventlog.TraceParent, eventlog.TraceState} }
