package eventlog

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// One partition is idle with its batches kept; another is busy, and trimmed before memory is short.
func TestTailForgetsBatchesThatWereDroppedBeforeTheirTurn(t *testing.T) {
	tail, _ := rig(1<<20, false)
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

// rig is a tail of topics that are compacted, or not.
func rig(limit int64, compacted bool) (*tail, func(base Offset, records int32)) {
	policy := "delete"
	if compacted {
		policy = "compact"
	}
	t := newTail(limit, func(Partition) (Topic, bool) {
		return Topic{Config: map[string]string{"cleanup.policy": policy}}, true
	})
	return t, func(base Offset, records int32) {
		t.append([]Placed{{Base: base, Batch: Batch{Partition: 1, Records: records, Bytes: make([]byte, 100)}}})
	}
}

// bases are where the batches begin that the tail answers a span with.
func bases(t *tail, from Offset) (at []Offset) {
	s, _ := t.read(Span{Partition: 1, From: from, MaxBytes: 1 << 20})
	return basesOf(s)
}

func basesOf(s Slice) (at []Offset) {
	for _, b := range s.Batches {
		at = append(at, b.Base)
	}
	return at
}

// Two processes append to one partition.
func TestTailKeepsItsBatchesWhenAnotherProcessAppends(t *testing.T) {
	tail, put := rig(1<<20, false)
	put(0, 2)
	put(2, 2)
	tail.updateBounds(0, Bounds{Partition: 1, Next: 7, Bytes: 500}) // another process: 4 to 6
	for most, want := range map[int][]Offset{100: {0}, 150: {0}, 200: {0, 2}, 201: nil} {
		s, _ := tail.read(Span{Partition: 1, From: 1, MaxBytes: most})
		if got := basesOf(s); !slices.Equal(got, want) {
			t.Errorf("%d bytes before the gap: %v, want %v", most, got, want)
		}
	}
	put(7, 1)
	put(8, 1)
	for from, want := range map[Offset][]Offset{0: nil, 3: nil, 4: nil, 6: nil, 7: {7, 8}, 8: {8}} {
		if got := bases(tail, from); !slices.Equal(got, want) {
			t.Errorf("from %d: %v, want %v", from, got, want)
		}
	}
	for from, want := range map[Offset]int64{0: -1, 4: -1, 7: 200, 8: 100, 9: 0} {
		n, ok := tail.available([]Span{{Partition: 1, From: from, MaxBytes: 1 << 20}})
		if ok != (want >= 0) || ok && n != want {
			t.Errorf("from %d: %d bytes are there, %v; want %d", from, n, ok, want)
		}
	}
	tail.adopt(0, placed(4, 3)) // what a reader in the gap got from the store
	if got := bases(tail, 0); !slices.Equal(got, []Offset{0, 2, 4, 7, 8}) {
		t.Errorf("with the gap filled: %v", got)
	}
	if n, ok := tail.available([]Span{{Partition: 1, From: 2, MaxBytes: 1 << 20}}); !ok || n != 400 {
		t.Errorf("with the gap filled, %d bytes are there, %v", n, ok)
	}
}

func placed(base Offset, records int32) []Placed {
	return []Placed{{Base: base, Batch: Batch{Partition: 1, Records: records, Bytes: make([]byte, 100)}}}
}

// The follower may learn of this process's own append before the process has its answer.
func TestTailCachesItsOwnAppendThatTheFollowerToldFirst(t *testing.T) {
	tail, put := rig(1<<20, false)
	put(0, 1)
	tail.updateBounds(0, Bounds{Partition: 1, Next: 4, Bytes: 300})
	put(3, 1)
	put(1, 2)
	put(1, 2) // once
	if got := bases(tail, 0); !slices.Equal(got, []Offset{0, 1, 3}) || tail.bytes != 3*(100+placedCost) {
		t.Errorf("cached are %v, %d bytes", got, tail.bytes)
	}
	tail.trim(1, 3)
	put(1, 2)
	if got := bases(tail, 3); !slices.Equal(got, []Offset{3}) || len(tail.partitions[1].batches) != 1 {
		t.Errorf("after a trim: %v", got)
	}
}

// What a reader far behind reads is no business of the others.
func TestTailAdoptsOnlyWhatJoinsWhatItHas(t *testing.T) {
	tail, put := rig(1<<20, false)
	tail.updateBounds(0, Bounds{Partition: 1, Next: 10, Bytes: 1000})
	put(10, 2)
	for _, c := range []struct {
		base    Offset
		records int32
		adopted bool
	}{{0, 2, false}, {6, 2, false}, {8, 2, true}, {7, 2, false}, {6, 2, true}} {
		tail.adopt(0, placed(c.base, c.records))
		if got := bases(tail, c.base); slices.Contains(got, c.base) != c.adopted {
			t.Errorf("[%d, %d): adopted %v", c.base, int(c.base)+int(c.records), got)
		}
	}
	if got := bases(tail, 6); !slices.Equal(got, []Offset{6, 8, 10}) {
		t.Errorf("in the end: %v", got)
	}
}

// The bytes of a partition do not tell what another process compacted, if it has also appended.
func TestTailDropsWhatMayBeCompactedWhenAnotherProcessAppends(t *testing.T) {
	tail, put := rig(1<<20, true)
	put(0, 2)
	tail.updateBounds(0, Bounds{Partition: 1, Next: 4, Bytes: 200})
	put(4, 1)
	if got := bases(tail, 0); got != nil {
		t.Errorf("%v is still cached", got)
	}
	if got := bases(tail, 4); !slices.Equal(got, []Offset{4}) {
		t.Errorf("its own append is not: %v", got)
	}
}

// A model: whatever two processes do, a span is answered with what the store has from there on.
func TestTailAnswersWhatTheStoreHas(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for range 200 {
		tail, _ := rig(int64(1000+random.IntN(20_000)), false)
		var all []Placed
		first, next := Offset(0), Offset(0)
		for range 100 {
			switch random.IntN(6) {
			case 0, 1: // this process appends
				b := placed(next, int32(1+random.IntN(5)))
				all, next = append(all, b...), b[0].End()
				tail.append(b)
			case 2: // another process does, and the follower tells of it, or the next append
				b := placed(next, int32(1+random.IntN(5)))
				all, next = append(all, b...), b[0].End()
				if random.IntN(2) == 0 {
					tail.updateBounds(0, Bounds{Partition: 1, First: first, Next: next, Bytes: 100 * int64(len(all))})
				}
			case 3: // a reader reads
				if len(all) > 0 {
					from := random.IntN(len(all))
					read := all[from:min(len(all), from+1+random.IntN(4))]
					if known, _ := tail.known(1); read[len(read)-1].End() <= known.Next {
						tail.adopt(0, read)
					}
				}
			case 4:
				if first+4 < next && random.IntN(10) == 0 {
					first += 3
					tail.trim(1, first)
				}
			case 5:
				if next == 0 {
					continue
				}
				from := Offset(random.Int64N(int64(next)))
				s, where := tail.read(Span{Partition: 1, From: from, MaxBytes: 1 << 20})
				if known, _ := tail.known(1); where == inTail && s.Batches[len(s.Batches)-1].End() != known.Next {
					t.Fatalf("from %d: the answer ends at %d of %d", from, s.Batches[len(s.Batches)-1].End(), known.Next)
				}
				at := from
				for i, b := range s.Batches {
					if where != inTail || i > 0 && b.Base != at || b.Base > at || b.End() <= at || !slices.ContainsFunc(all, func(p Placed) bool { return p.Base == b.Base && p.Records == b.Records }) {
						t.Fatalf("from %d: %v at %d, %v", from, b.Base, i, where)
					}
					at = b.End()
				}
				n, ok := tail.available([]Span{{Partition: 1, From: from, MaxBytes: 1 << 20}})
				if known, _ := tail.known(1); ok != (at == known.Next) && from < known.Next || ok && n != int64(100*len(s.Batches)) {
					t.Fatalf("from %d: %d bytes are there, and %d batches up to %d of %d", from, n, len(s.Batches), at, known.Next)
				}
			}
			cached := 0
			for _, l := range tail.partitions {
				cached += len(l.batches)
			}
			if tail.bytes != int64(cached)*(100+placedCost) || tail.bytes > tail.limit || len(tail.fifo)-tail.stale != cached {
				t.Fatalf("%d bytes, %d batches, %d elements of which %d are stale", tail.bytes, cached, len(tail.fifo), tail.stale)
			}
		}
	}
}
