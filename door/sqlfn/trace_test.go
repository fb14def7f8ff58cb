package sqlfn_test

import (
	"context"
	"testing"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
)

// spans is a tracer that passes on what is begun.
type spans chan eventlog.SpanInfo

func (s spans) Start(ctx context.Context, name string, info eventlog.SpanInfo) (context.Context, func(error)) {
	if name == "mover" {
		s <- info
	}
	return ctx, func(error) {}
}

func (spans) Inject(context.Context) []batch.RecordHeader { return nil }

func TestAMoveIsLinkedToWhatPublished(t *testing.T) {
	address := pgtest.URL(t)
	seen := make(spans, 10)
	p := startWith(t, address, sqlfn.Config{Tracer: seen})
	p.create("orders", 1, nil)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	exec(t, connect(t, address), `SELECT weir.publish('orders', 'k', 'v', '{"traceparent": "`+parent+`", "tracestate": "a=b"}'), weir.publish('orders', 'k', 'w')`)
	p.read("orders", 2)
	info := <-seen
	if info.Records != 2 || len(info.Links) != 1 || info.Links[0] != (eventlog.TraceContext{Parent: parent, State: "a=b"}) {
		t.Errorf("%+v", info)
	}
}
