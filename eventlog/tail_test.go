package eventlog

import "testing"

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
