package httpapi_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// searched counts the calls of a store by which a reset finds offsets.
type searched struct {
	eventlog.Store
	calls atomic.Int64
}

func (s *searched) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.calls.Add(1)
	return s.Store.Seek(ctx, goals)
}

func (s *searched) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.calls.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

// A reset of all partitions of a topic to a time makes few store calls, and its answer has a bound.
func TestAResetOfManyPartitionsToATimeIsCheap(t *testing.T) {
	store := &searched{Store: memory.New()}
	d := openOn(t, store, httpapi.Config{})
	const partitions, shown = 10_000, 1000
	d.topic("wide", partitions)
	for i := range 3 {
		line := fmt.Sprintf(`{"value":"v","partition":%d,"timestamp":%d}`+"\n", 4000*i, 1000*i)
		d.do("POST", "/v1/topics/wide/batch", line, "Content-Type: application/x-ndjson")
	}
	d.asJSON("PUT", "/v1/groups/g/offsets", `{"dry_run":true,"offsets":[{"topic":"wide","partition":0,"timestamp":0}]}`).
		want(200, `{"offsets":[{"topic":"wide","partition":0,"offset":0,"end_offset":1,"lag":1}],"total":1,"lag":1}`)
	d.get("/v1/groups/g").refused(404, "unknown_group") // a dry run makes nothing
	store.calls.Store(0)
	a := d.asJSON("PUT", "/v1/groups/g/offsets", `{"offsets":[{"topic":"wide","timestamp":1}]}`)
	if n := store.calls.Load(); n > 40 {
		t.Errorf("%d store calls", n)
	}
	var set struct {
		Offsets []struct{ Partition, Offset int }
		Total   int
		Lag     int
	}
	a.into(200, &set)
	if len(set.Offsets) != shown || set.Total != partitions || set.Lag != 2 {
		t.Errorf("%d of %d offsets, lag %d", len(set.Offsets), set.Total, set.Lag)
	}
	d.get("/v1/groups/g/offsets").into(200, &set)
	if len(set.Offsets) != partitions || set.Total != partitions || set.Lag != 2 {
		t.Errorf("all: %d of %d offsets, lag %d", len(set.Offsets), set.Total, set.Lag)
	}
	for i, o := range set.Offsets {
		if want := map[int]int{0: 1}[i]; o.Partition != i || o.Offset != want {
			t.Fatalf("%+v, want partition %d at %d", o, i, want)
		}
	}
}
