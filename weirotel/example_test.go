package weirotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/weirotel"
)

// The Go library reports its work to OpenTelemetry. A handler's span links back to the span that
// published the event.
func Example() {
	ctx := context.Background()
	spans := tracetest.NewInMemoryExporter() // a real program sends spans to a collector, and gets its provider from otel.GetTracerProvider()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(spans))

	w, err := weir.Open(ctx, "memory:", weir.Options{Tracer: weirotel.New(provider)})
	check(err)
	check(w.EnsureTopic(ctx, weir.Topic{Name: "orders"}))
	_, err = w.Publish(ctx, weir.Event{Topic: "orders", Value: []byte("two teapots")})
	check(err)
	handled := make(chan bool)
	_, err = w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
		handled <- trace.SpanFromContext(ctx).IsRecording() // for spans of your own
		return nil
	}})
	check(err)
	fmt.Println(<-handled)
	check(w.Close(ctx))

	by := map[string]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		by[s.Name] = s
	}
	deliver := by["deliver orders"]
	fmt.Println(by["handle orders"].Parent.SpanID() == deliver.SpanContext.SpanID())
	fmt.Println(deliver.Links[0].SpanContext.SpanID() == by["publish orders"].SpanContext.SpanID())
	// Output:
	// true
	// true
	// true
}

// check keeps the example short. Programs handle their errors.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
