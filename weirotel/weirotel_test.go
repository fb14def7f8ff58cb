package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/weirotel"
)

// setup opens a log whose spans are kept in memory, and a publisher on it. stop ends the log, so
// that all spans end.
func setup(t *testing.T, topics ...string) (p *publish.Publisher, log *eventlog.Log, spans *tracetest.InMemoryExporter, stop func()) {
	t.Helper()
	spans = tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))
	tracer := weirotel.New(provider)
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{Tracer: tracer})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	for _, name := range topics {
		if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 2}); err != nil {
			t.Fatal(err)
		}
	}
	spans.Reset()
	return publish.New(log, publish.Config{Tracer: tracer}), log, spans, stop
}

func find(t *testing.T, spans *tracetest.InMemoryExporter, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range spans.GetSpans() {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("there is no span %q", name)
	return tracetest.SpanStub{}
}

func TestAPublishLeadsToAFlushAndTravelsInTheRecord(t *testing.T) {
	one, other := int32(0), int32(1)
	for name, events := range map[string][]publish.Event{
		"loose":  {{Topic: "orders", Value: []byte("v"), Headers: []batch.RecordHeader{{Key: "a"}}}},
		"sealed": {{Topic: "orders", Partition: &one}, {Topic: "orders", Partition: &other}},
	} {
		t.Run(name, func(t *testing.T) {
			p, log, spans, stop := setup(t, "orders")
			placed, err := p.Publish(t.Context(), events...)
			if err != nil {
				t.Fatal(err)
			}
			record := recordAt(t, log, "orders", placed[0])
			stop()
			published, flushed := find(t, spans, "publish orders"), find(t, spans, "flush")
			if published.SpanKind != trace.SpanKindProducer || published.Status.Code == codes.Error {
				t.Errorf("the publish span: %v, %v", published.SpanKind, published.Status)
			}
			if len(flushed.Links) != 1 || flushed.Links[0].SpanContext.SpanID() != published.SpanContext.SpanID() {
				t.Errorf("the flush is linked to %v, the publish is %v", flushed.Links, published.SpanContext.SpanID())
			}
			want := "00-" + published.SpanContext.TraceID().String() + "-" + published.SpanContext.SpanID().String() + "-01"
			if tc, ok := eventlog.TraceOf(record.Headers); !ok || tc.Parent != want {
				t.Errorf("the record carries %q, want %q", record.Headers, want)
			}
			count := attribute.Int("messaging.batch.message_count", len(events))
			if !has(published, attribute.String("messaging.destination.name", "orders")) || !has(published, count) || !has(flushed, count) {
				t.Errorf("attributes: %v and %v", published.Attributes, flushed.Attributes)
			}
		})
	}
}

func has(s tracetest.SpanStub, want attribute.KeyValue) bool {
	for _, kv := range s.Attributes {
		if kv == want {
			return true
		}
	}
	return false
}

func recordAt(t *testing.T, log *eventlog.Log, topic string, at publish.Placed) batch.Record {
	t.Helper()
	found, err := log.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: found.Partitions[at.Partition], From: at.Offset, MaxBytes: 1}}})
	if err != nil || got[0].Err != nil {
		t.Fatal(err, got)
	}
	for r, err := range batch.Records(got[0].Batches[0].Bytes, 1<<20) {
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	panic("an empty batch")
}

func TestATraceOfOnesOwnStaysInTheRecordAndIsLinkedTo(t *testing.T) {
	const (
		parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the example of W3C Trace Context
		state  = "congo=t61rcWkgMzE"
	)
	p, log, spans, stop := setup(t, "orders")
	own := []batch.RecordHeader{{Key: "traceparent", Value: []byte(parent)}, {Key: "tracestate", Value: []byte(state)}}
	placed, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Headers: own})
	if err != nil {
		t.Fatal(err)
	}
	if r := recordAt(t, log, "orders", placed[0]); len(r.Headers) != 2 || string(r.Headers[0].Value) != parent || string(r.Headers[1].Value) != state {
		t.Errorf("the record carries %q", r.Headers)
	}
	stop()
	published := find(t, spans, "publish orders")
	if len(published.Links) != 1 {
		t.Fatalf("links: %v", published.Links)
	}
	link := published.Links[0].SpanContext
	if link.SpanID().String() != "b7ad6b7169203331" || link.TraceState().String() != state || !link.IsRemote() {
		t.Errorf("linked to %v, state %q", link.SpanID(), link.TraceState())
	}
}

// Two tracestates would be none: an event that brings one is left as it is.
func TestAStateOfOnesOwnIsNotDoubled(t *testing.T) {
	p, log, _, _ := setup(t, "orders")
	tracer := weirotel.New(sdk.NewTracerProvider())
	state, err := trace.ParseTraceState("a=b")
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := tracer.Start(trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: state})), "deliver", eventlog.SpanInfo{})
	defer end(nil)
	placed, err := p.Publish(ctx, publish.Event{Topic: "orders", Headers: []batch.RecordHeader{{Key: "tracestate", Value: []byte("c=d")}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := recordAt(t, log, "orders", placed[0]); len(r.Headers) != 1 || string(r.Headers[0].Value) != "c=d" {
		t.Errorf("the record carries %q", r.Headers)
	}
}

func TestATraceThatIsNoneIsLeftOut(t *testing.T) {
	p, _, spans, stop := setup(t, "orders")
	for _, bad := range []string{"", "x", "00-00000000000000000000000000000000-0000000000000000-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"} {
		if _, err := p.Publish(t.Context(), publish.Event{Topic: "orders", Headers: []batch.RecordHeader{{Key: "traceparent", Value: []byte(bad)}}}); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for _, s := range spans.GetSpans() {
		if s.Name == "publish orders" && len(s.Links) > 0 {
			t.Errorf("linked to %v", s.Links)
		}
	}
}

func TestASpanIsAChildAndTellsOfFailure(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	tracer := weirotel.New(sdk.NewTracerProvider(sdk.WithSyncer(spans)))
	ctx, endOuter := tracer.Start(t.Context(), "deliver", eventlog.SpanInfo{Topic: "orders", Group: "g", Records: 3})
	_, endInner := tracer.Start(ctx, "handle", eventlog.SpanInfo{})
	endInner(errors.New("no luck"))
	endOuter(nil)
	outer, inner := find(t, spans, "deliver orders"), find(t, spans, "handle")
	if inner.Parent.SpanID() != outer.SpanContext.SpanID() || inner.Status.Code != codes.Error || inner.Status.Description != "no luck" {
		t.Errorf("handle: child of %v, %v", inner.Parent.SpanID(), inner.Status)
	}
	if outer.Status.Code == codes.Error || outer.SpanKind != trace.SpanKindConsumer || !has(outer, attribute.String("messaging.consumer.group.name", "g")) {
		t.Errorf("deliver: %v, %v, %v", outer.Status, outer.SpanKind, outer.Attributes)
	}
	if got := tracer.Inject(context.Background()); got != nil {
		t.Errorf("without a span there are headers %q", got)
	}
}

func TestOperationsAreMeasured(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	tracer := weirotel.New(sdk.NewTracerProvider(), weirotel.WithMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	for name, err := range map[string]error{
		"publish": nil, "handle": errors.New("no luck"), "work": fmt.Errorf("wrapped: %w", eventlog.ErrUnsure), "deliver": nil, "flush": nil,
	} {
		_, end := tracer.Start(t.Context(), name, eventlog.SpanInfo{Topic: "orders", Group: map[bool]string{true: "g"}[name == "handle"], Records: 3})
		end(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{} // messages, or operations that were timed
	for _, m := range all.ScopeMetrics[0].Metrics {
		describe := func(set attribute.Set) string {
			return m.Name + " " + m.Unit + " " + set.Encoded(attribute.DefaultEncoder())
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				got[describe(p.Attributes)] = p.Value
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				got[describe(p.Attributes)] = int64(p.Count)
			}
		}
	}
	const (
		publish = "messaging.destination.name=orders,messaging.operation.name=publish,messaging.operation.type=send,messaging.system=weir"
		handle  = "error.type=_OTHER,messaging.consumer.group.name=g,messaging.destination.name=orders,messaging.operation.name=handle,messaging.operation.type=process,messaging.system=weir"
		work    = "error.type=unknown_outcome,messaging.destination.name=orders,messaging.operation.name=work,messaging.operation.type=process,messaging.system=weir"
	)
	want := map[string]int64{
		"messaging.client.operation.duration s " + publish: 1, "messaging.client.sent.messages {message} " + publish: 3,
		"messaging.process.duration s " + handle: 1, "messaging.client.consumed.messages {message} " + handle: 3,
		"messaging.process.duration s " + work: 1, "messaging.client.consumed.messages {message} " + work: 3,
	}
	if !maps.Equal(got, want) {
		t.Errorf("measured %v, want %v", got, want)
	}
}
