package storetest

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weir-log/weir/eventlog"
)

var readTests = map[string]func(*testing.T, Harness){
	"ReadStartsWithTheBatchThatHoldsTheOffset": testReadFromEveryOffset,
	"ReadKeepsToMaxBytesButGivesOneBatch":      testReadMaxBytes,
	"ReadHasOneBudgetForAllSpans":              testReadBudget,
	"ReadOfNoBytesGivesTheBounds":              testReadBounds,
	"ReadOutsideTheBoundsIsEmpty":              testReadOutside,
	"ReadAnswersManySpansInTheirOrder":         testReadManySpans,
	"BytesReadBelongToTheReader":               testReadersOwnBytes,
}

func testReadFromEveryOffset(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	var bases []eventlog.Offset
	for i := range 8 {
		r.publish(batch(2, 3, 10))
		bases = append(bases, r.publish(batch(1, int32(1+i%4), 10))[0])
	}
	next := r.bounds(1).Next
	for from := range next {
		slice := r.read(eventlog.Span{Partition: 1, From: from, MaxBytes: 1 << 20})[0]
		if slice.Err != nil || len(slice.Batches) == 0 {
			t.Fatalf("read from %d: %+v", from, slice)
		}
		end := slice.Batches[0].Base
		if first := slice.Batches[0]; from < first.Base || from >= first.End() {
			t.Errorf("read from %d starts with batch %d of %d records", from, first.Base, first.Records)
		}
		for _, b := range slice.Batches {
			if b.Partition != 1 || b.Base != end {
				t.Fatalf("read from %d: batch %d of partition %d where %d of 1 should come", from, b.Base, b.Partition, end)
			}
			end += eventlog.Offset(b.Records)
		}
		if end != next {
			t.Errorf("read from %d, with room for all, ends at %d, want %d", from, end, next)
		}
	}
	if len(bases) != len(r.all(1)) {
		t.Errorf("%d batches, want %d", len(r.all(1)), len(bases))
	}
}

func testReadMaxBytes(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	sizes := []int{100, 100, 100, 50_000, 100, 100}
	for _, size := range sizes {
		r.publish(batch(1, 1, size))
	}
	for _, c := range []struct{ from, maxBytes, most int }{
		{0, 1, 1}, {0, 99, 1}, {0, 100, 1}, {0, 199, 1}, {0, 200, 2}, {0, 300, 3}, {0, 50_299, 3}, {0, 50_300, 4},
		{3, 1, 1}, {3, 50_100, 2}, {4, 1 << 30, 2}, {5, 1, 1}, {0, math.MaxInt, 6}, {0, math.MaxInt32, 6},
	} {
		slice := r.read(eventlog.Span{Partition: 1, From: eventlog.Offset(c.from), MaxBytes: c.maxBytes})[0]
		if got := len(slice.Batches); got < 1 || got > c.most {
			t.Errorf("read from %d at most %d bytes: %d batches, want 1 to %d", c.from, c.maxBytes, got, c.most)
		}
	}
}

// Only the first batch of all may be larger than what is asked for, even if a partition is named
// many times.
func testReadBudget(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2, 3, 4)
	for range 4 {
		r.publish(batch(1, 1, 100), batch(2, 1, 100), batch(3, 1, 20_000))
	}
	type spans = []eventlog.Span
	span := func(id eventlog.Partition, from eventlog.Offset, maxBytes int) eventlog.Span {
		return eventlog.Span{Partition: id, From: from, MaxBytes: maxBytes}
	}
	for name, c := range map[string]struct {
		maxBytes int
		spans    spans
		want     []int // batches of each span
	}{
		"the first span takes all":                    {400, spans{span(1, 0, 1000), span(2, 0, 1000)}, []int{4, 0}},
		"the first leaves some":                       {400, spans{span(1, 2, 1000), span(2, 0, 1000)}, []int{2, 2}},
		"each has its own bound":                      {1000, spans{span(1, 0, 200), span(2, 0, 100)}, []int{2, 1}},
		"a later span's large first batch waits":      {1000, spans{span(1, 0, 200), span(3, 0, 1000), span(2, 0, 1000)}, []int{2, 0, 4}},
		"a later span's bound is kept":                {1 << 20, spans{span(1, 0, 100), span(2, 0, 99), span(3, 0, 100)}, []int{1, 0, 0}},
		"the first of all comes however large":        {1, spans{span(3, 0, 1), span(1, 0, 100), span(3, 1, 1)}, []int{1, 0, 0}},
		"empty ones are passed":                       {1, spans{span(9, 0, 1), span(4, 0, 1), span(1, 4, 1), span(1, 99, 1), span(3, 3, 1), span(2, 0, 1)}, []int{0, 0, 0, 0, 1, 0}},
		"bounds alone count for nothing":              {1, spans{span(3, 0, 0), span(1, 0, 0), span(2, 0, 1)}, []int{0, 0, 1}},
		"no budget brings one batch":                  {0, spans{span(1, 0, 1000), span(2, 0, 1000)}, []int{1, 0}},
		"many mentions bring no more than one":        {150, spans{span(1, 0, 1000), span(1, 0, 1000), span(1, 0, 1000), span(1, 1, 1000)}, []int{1, 0, 0, 0}},
		"many mentions of a large one bring one":      {150, spans{span(3, 0, 1), span(3, 0, 1), span(3, 1, 1)}, []int{1, 0, 0}},
		"what the first had too much is not borrowed": {20_100, spans{span(3, 0, 1), span(1, 0, 1000)}, []int{1, 1}},
	} {
		for i, slice := range r.readWithin(c.maxBytes, c.spans...) {
			if got := len(slice.Batches); got != c.want[i] {
				t.Errorf("%s: %d batches of span %d, %+v, want %d", name, got, i, c.spans[i], c.want[i])
			}
			if id := c.spans[i].Partition; id != 9 && (slice.Err != nil || slice.Bounds.Next == 0 && id != 4) {
				t.Errorf("%s: span %d has bounds %+v, %v", name, i, slice.Bounds, slice.Err)
			}
		}
	}
}

func testReadBounds(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(batch(1, 4, 10))
	want := eventlog.Slice{Bounds: eventlog.Bounds{Partition: 1, Next: 4, Bytes: 10}}
	for _, from := range []eventlog.Offset{0, 3, 4, 99} {
		if diff := cmp.Diff(want, r.read(eventlog.Span{Partition: 1, From: from})[0]); diff != "" {
			t.Errorf("bounds asked with offset %d (-want +got):\n%s", from, diff)
		}
	}
}

func testReadOutside(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1, 2)
	r.publish(batch(1, 2, 10), batch(1, 8, 10), batch(1, 2, 10))
	r.trim(1, 5)
	for _, span := range []eventlog.Span{
		{Partition: 1, From: -1}, {Partition: 1, From: 0}, {Partition: 1, From: 4}, {Partition: 1, From: 12},
		{Partition: 1, From: math.MaxInt64}, {Partition: 1, From: math.MinInt64}, {Partition: 2, From: 0},
	} {
		span.MaxBytes = 1 << 20
		slice := r.read(span)[0]
		if slice.Err != nil || len(slice.Batches) != 0 {
			t.Errorf("read %+v, outside the bounds: %+v", span, slice)
		}
		if span.Partition == 1 && (slice.Bounds.First != 5 || slice.Bounds.Next != 12) {
			t.Errorf("read %+v gave bounds %+v, want [5, 12)", span, slice.Bounds)
		}
	}
	if slice := r.read(eventlog.Span{Partition: 1, From: 5, MaxBytes: 1})[0]; len(slice.Batches) != 1 || slice.Batches[0].Base != 2 {
		t.Errorf("read from first, which lies within a batch: %+v, want the batch at 2", slice)
	}
}

func testReadManySpans(t *testing.T, h Harness) {
	r := newRig(t, h)
	var spans []eventlog.Span
	for id := range eventlog.Partition(60) {
		if id%7 != 3 {
			r.openPartitions(id)
			r.publish(batch(id, int32(1+id), 10), batch(id, 1, 10))
		}
		spans = append(spans, eventlog.Span{Partition: id, From: eventlog.Offset(id), MaxBytes: 10})
	}
	spans = append(spans, eventlog.Span{Partition: 5, From: 6, MaxBytes: 10}, eventlog.Span{Partition: 5, From: 0, MaxBytes: 10})
	for i, slice := range r.read(spans...) {
		id := spans[i].Partition
		if slice.Bounds.Partition != id {
			t.Fatalf("slice %d is of partition %d, want %d", i, slice.Bounds.Partition, id)
		}
		if missing := id%7 == 3; (slice.Err != nil) != missing || (len(slice.Batches) == 0) != missing {
			t.Errorf("partition %d: %+v", id, slice)
		}
	}
	last := r.read(spans...)[60:]
	if last[0].Batches[0].Base != 6 || last[1].Batches[0].Base != 0 {
		t.Errorf("two spans of one partition: %+v", last)
	}
	if got, err := r.store.Read(r.ctx, nil, 0); err != nil || len(got) != 0 {
		t.Errorf("read of no spans: %+v, %v", got, err)
	}
}

func testReadersOwnBytes(t *testing.T, h Harness) {
	r := newRig(t, h)
	r.openPartitions(1)
	r.publish(eventlog.Batch{Partition: 1, Records: 1, Bytes: []byte("as it was sent")})
	clear(r.all(1)[0].Bytes)
	if got := r.all(1)[0].Bytes; string(got) != "as it was sent" {
		t.Errorf("a reader changed its bytes, and the log changed too: %q", got)
	}
}

// scan reads what a partition holds, in several reads, and checks that it is without gaps.
func scan(ctx context.Context, store eventlog.Store, id eventlog.Partition) ([]eventlog.Placed, error) {
	slices, err := store.Read(ctx, []eventlog.Span{{Partition: id}}, 0)
	if err != nil {
		return nil, fmt.Errorf("scan partition %d: %w", id, err)
	}
	if slices[0].Err != nil {
		return nil, fmt.Errorf("scan partition %d: %w", id, slices[0].Err)
	}
	var all []eventlog.Placed
	at, next := slices[0].Bounds.First, slices[0].Bounds.Next
	for at < next {
		slices, err := store.Read(ctx, []eventlog.Span{{Partition: id, From: at, MaxBytes: 1 << 20}}, 1<<20)
		if err != nil {
			return nil, fmt.Errorf("scan partition %d from %d: %w", id, at, err)
		}
		got := slices[0].Batches
		if len(got) == 0 {
			return nil, fmt.Errorf("scan partition %d: nothing at %d, below next %d: %+v", id, at, next, slices[0])
		}
		for i, b := range got {
			if b.Base != at && (i > 0 || len(all) > 0 || b.Base > at || b.End() <= at) {
				return nil, fmt.Errorf("scan partition %d: batch at %d, %d records, where %d should come", id, b.Base, b.Records, at)
			}
			at = b.End()
		}
		all = append(all, got...)
	}
	return all, nil
}
