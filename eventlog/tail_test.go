package eventlog

import (
	"testing"
	"testing/synctest"
	"time"
)

// One partition is idle with its batches kept; another is busy, and trimmed before memory is short.
func TestTailForgetsBatchesThatWereDroppedBeforeTheirTurn(t *testing.T) {
	tail := newTail(1<<20, nil)
	put := func(p Partition, at Offset) {
		tail.append([]Placed{{Base: at, Batch: Batch{Partition: p, Records: 1, Bytes: make([]byte, 100)}}})
	}
	put(1, 0)
	const busy = 10_000
	for at := range Offset(busy) {
		put(2, at)
		tail.trim(2, at)
	}
	if n := len(tail.fifo); n > 10 {
		t.Errorf("3 batches are cached, and fifo has %d elements", n)
	}
	for at := range Offset(busy) { // past the limit
		put(3, at)
	}
	if tail.bytes > tail.limit || len(tail.partitions[1].batches) > 0 || len(tail.partitions[2].batches) > 0 {
		t.Errorf("%d bytes are kept, the limit is %d; %d and %d old batches", tail.bytes, tail.limit, len(tail.partitions[1].batches), len(tail.partitions[2].batches))
	}
	kept := tail.partitions[3].batches
	if want := int(tail.limit / (100 + placedCost)); len(kept) != want || kept[len(kept)-1].Base != busy-1 || len(tail.fifo) != want || tail.stale != 0 {
		t.Errorf("%d batches up to %d, %d elements and %d of them stale, want %d up to %d", len(kept), kept[len(kept)-1].Base, len(tail.fifo), tail.stale, want, busy-1)
	}
}

// What was read ahead before a rewind is gathered with a span that waits; meanwhile another
// incarnation begins, in which the partition ends where those records end.
func TestWhatWasReadAheadBeforeARewindDoesNotEnterTheTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{tail: newTail(1<<20, nil)}
		l.catalog.Store(&catalog{})
		l.prefetch = newPrefetch(l.read, l.tail.known, l.tail.incarnationNumber)
		for p := range Partition(2) {
			l.tail.updateBounds(0, Bounds{Partition: p, Next: 50})
		}
		ahead := func(p Partition, incarnation int64, done chan struct{}) {
			read := Placed{Batch: Batch{Partition: p, Records: 2, Bytes: []byte("of before")}}
			l.prefetch.note(&prefetched{
				noted: noted{partitionOffset{p, 0}, time.Now()}, incarnation: incarnation, done: done, slice: Slice{Batches: []Placed{read}},
			})
		}
		here, waits := make(chan struct{}), make(chan struct{})
		close(here)
		ahead(0, 0, here)
		ahead(1, 1, waits)
		go func() {
			synctest.Wait() // until collect waits for the second
			l.tail.reset([]Bounds{{Partition: 0, Next: 2}, {Partition: 1, Next: 2}}, func() {})
			close(waits)
		}()
		if _, _, err := l.collect(t.Context(), Want{Spans: []Span{{0, 0, 100}, {1, 0, 100}}}, 1000, 0); err != nil {
			t.Fatal(err)
		}
		if s, at := l.tail.read(Span{Partition: 0, MaxBytes: 100}); at != inStore {
			t.Errorf("the tail answers with what is %q", s.Batches[0].Bytes)
		}
	})
}

// A reader has read batches when another process replaces them, and the follower tells of that.
func TestTailAdoptsNoBatchThatWasReplacedSinceItWasRead(t *testing.T) {
	tail := newTail(1<<20, nil)
	read := Bounds{Partition: 1, Next: 2, Bytes: 200}
	batches := []Placed{{Base: 0, Batch: Batch{Partition: 1, Records: 2, Bytes: make([]byte, 200)}}}
	tail.updateBounds(0, read)
	tail.updateBounds(0, Bounds{Partition: 1, Next: 2, Bytes: 150})
	tail.adopt(0, read, batches)
	if _, at := tail.read(Span{Partition: 1, MaxBytes: 1000}); at != inStore {
		t.Error("it has what was replaced")
	}
	tail.adopt(0, Bounds{Partition: 1, Next: 2, Bytes: 150}, batches)
	if _, at := tail.read(Span{Partition: 1, MaxBytes: 1000}); at != inTail {
		t.Error("it does not adopt what is there")
	}
}
