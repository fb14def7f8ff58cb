package eventlog

import (
	"slices"
	"sync"
)

// tail caches every partition's bounds and recent batches, and knows which readers wait for more. A
// reader near the end is served from here and never touches the store.
//
//	partition   First ............... batches[0].Base ............ Next
//	            |---- in the store ----|---- here and in the store ---|
type tail struct {
	mu         sync.Mutex // guards everything below
	partitions map[Partition]*partitionTail
	// waiters are not in partitionTail, because a waiting reader must be woken even after its
	// partition was dropped here.
	waiters map[Partition]map[chan<- struct{}]struct{}
	watches map[TopicID]map[*Watch]struct{}
	topicOf func(Partition) (TopicID, bool) // the topic of a partition, among the topics that this process knows; false: it is not known

	fifo        []*partitionTail // eviction order: one element for each cached batch, oldest first
	stale       int              // elements of fifo whose batch is no longer cached
	bytes       int64
	limit       int64
	incarnation int64 // local number of the store's incarnation; reset increments it
	checks      int64 // number of rewind checks begun
}

// partitionTail is what the tail has of one partition.
type partitionTail struct {
	bounds      Bounds
	batches     []Placed // contiguous; the last one ends at bounds.Next
	sums        []int64  // for each of batches, the total of bytes up to and with it, from an arbitrary start: only differences count
	stale       int      // how many of its oldest elements in fifo are stale
	nextAtCheck Offset   // what bounds.Next was when the rewind check numbered by the field check began
	check       int64    // the number of a rewind check; see nextAtCheck
}

// placedCost estimates the memory of a cached batch without its bytes.
const placedCost = 128

func newTail(limit int64, topicOf func(Partition) (TopicID, bool)) *tail {
	return &tail{
		partitions: make(map[Partition]*partitionTail), limit: limit,
		waiters: make(map[Partition]map[chan<- struct{}]struct{}), watches: make(map[TopicID]map[*Watch]struct{}), topicOf: topicOf,
	}
}

// append adds batches that this process has just committed, and wakes the readers that wait for
// them.
func (t *tail) append(placed []Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range placed {
		l := t.partition(b.Partition)
		end := b.End()
		if end <= l.bounds.Next {
			// Either the batch has no records, and only creates the partition; or updateBounds or
			// raiseEnd has raised the end past it already, and readers get it from the store.
			continue
		}
		if b.Base != l.bounds.Next {
			t.drop(l, len(l.batches)) // another process appended in between: cached batches must be contiguous
		}
		t.setEnd(l, end)
		l.bounds.Bytes += int64(len(b.Bytes))
		t.cache(l, b)
		t.wake(l.bounds.Partition)
	}
	t.evict()
}

// incarnationNumber returns the number of the incarnation that the tail describes. Each process
// counts for itself: numbers of two processes cannot be compared.
func (t *tail) incarnationNumber() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.incarnation
}

// reset replaces everything with the bounds of a new incarnation, and wakes all waiting readers. It
// calls enter before anybody can see the bounds.
func (t *tail) reset(all []Bounds, enter func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partitions, t.fifo, t.stale, t.bytes = make(map[Partition]*partitionTail), nil, 0, 0
	t.incarnation++
	enter()
	for _, b := range all {
		t.partition(b.Partition).bounds = b
	}
	for p := range t.waiters {
		t.wake(p)
	}
	t.wakeWatches()
}

// ends returns the incarnation number, and the next offset of each partition, 0 if it is unknown.
func (t *tail) ends(ps []Partition) (incarnation int64, ends []Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ends = make([]Offset, len(ps))
	for i, p := range ps {
		if l := t.partitions[p]; l != nil {
			ends[i] = l.bounds.Next
		}
	}
	return t.incarnation, ends
}

// beginCheck starts a rewind check. Call it before reading from the store the bounds to pass to the
// method rewound. Checks do not overlap.
func (t *tail) beginCheck() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.checks++
}

// rewound returns the partitions that in the store end below where they ended when the check began.
// It does not compare with the end known now: this process may have appended during the check.
func (t *tail) rewound(all []Bounds) (lower []Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range all {
		l := t.partitions[b.Partition]
		if l == nil {
			continue
		}
		was := l.bounds.Next
		if l.check == t.checks {
			was = l.nextAtCheck
		}
		if b.Next < was {
			lower = append(lower, b.Partition)
		}
	}
	return lower
}

// updateBounds updates a partition with bounds read from the store in the incarnation given. It
// ignores bounds of another incarnation.
func (t *tail) updateBounds(incarnation int64, b Bounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if incarnation != t.incarnation {
		return
	}
	l := t.partition(b.Partition)
	if b.Next < l.bounds.Next {
		// The bounds are older than our own append. First never decreases, so it still applies.
		t.raiseFirst(l, b.First)
		return
	}
	if b.Next > l.bounds.Next {
		t.skipTo(l, b.Next)
	}
	if b.Next == l.bounds.Next && b.First == l.bounds.First && b.Bytes < l.bounds.Bytes {
		t.drop(l, len(l.batches)) // another process compacted the partition
	}
	l.bounds.Bytes = b.Bytes
	t.raiseFirst(l, b.First)
}

// raiseEnd raises a partition's end to at least next.
func (t *tail) raiseEnd(p Partition, next Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.partition(p); next > l.bounds.Next {
		t.skipTo(l, next)
	}
}

// adopt caches batches read from the store, if they reach the partition's end and the tail has no
// batch of it. So only the first reader of another process's append fetches it from the store. The
// parameter read is the bounds that came with the batches: if the partition has another number of
// bytes by now, the batches may have been replaced, and adopt does nothing.
func (t *tail) adopt(incarnation int64, read Bounds, placed []Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if incarnation != t.incarnation {
		return
	}
	last := placed[len(placed)-1]
	l := t.partitions[last.Partition]
	if l == nil || len(l.batches) > 0 || read.Bytes != l.bounds.Bytes || last.End() != l.bounds.Next {
		return
	}
	for _, b := range placed {
		t.cache(l, b)
	}
	t.evict()
}

// trim raises First to before, but not past the end, and drops the batches below it.
func (t *tail) trim(p Partition, before Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.partitions[p]; l != nil {
		t.raiseFirst(l, min(before, l.bounds.Next))
	}
}

// replaced is called when compaction has made a Replace: it subtracts from the partition's size
// what compaction saved, and drops all cached batches that begin below r.To. bytes is the size of
// the batches that were replaced, cached or not.
func (t *tail) replaced(r Replace, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.partitions[r.Partition]
	if l == nil {
		return
	}
	for _, b := range r.Batches {
		bytes -= int64(len(b.Bytes))
	}
	l.bounds.Bytes -= bytes
	n := 0
	for n < len(l.batches) && l.batches[n].Base < r.To {
		n++
	}
	t.drop(l, n)
}

// forget drops deleted partitions and wakes their readers, which then get ErrNoPartition.
func (t *tail) forget(isDeleted func(Partition) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	some := false
	for p, l := range t.partitions {
		if isDeleted(p) {
			t.drop(l, len(l.batches))
			delete(t.partitions, p)
			some = true
		}
	}
	if some {
		t.wakeWatches() // nobody knows any more of which topic they were
	}
	for p := range t.waiters {
		if isDeleted(p) {
			t.wake(p)
		}
	}
}

// known returns the bounds as far as this process has seen them.
func (t *tail) known(p Partition) (Bounds, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.partitions[p]; l != nil {
		return l.bounds, true
	}
	return Bounds{Partition: p}, false
}

// source says what can answer a span.
type source int

const (
	inStore source = iota // the store
	unknown               // the store: this process does not know bounds that contain From
	inTail                // the returned slice has the batches
	atEnd                 // no batch yet: From is the partition's end
	trimmed               // nothing: From is below First
	deleted               // nothing: the topic was deleted
)

// read answers one span from memory if it can, with up to its MaxBytes and at least one batch.
func (t *tail) read(s Span) (Slice, source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.partitions[s.Partition]
	switch {
	case l == nil || s.From > l.bounds.Next:
		return Slice{Bounds: Bounds{Partition: s.Partition}}, unknown
	case s.From < l.bounds.First:
		return Slice{Bounds: l.bounds}, trimmed
	case s.From == l.bounds.Next:
		return Slice{Bounds: l.bounds}, atEnd
	case len(l.batches) == 0 || s.From < l.batches[0].Base:
		return Slice{Bounds: l.bounds}, inStore
	}
	first := l.holding(s.From)
	end, size := first, 0
	for end < len(l.batches) && (end == first || size+len(l.batches[end].Bytes) <= s.MaxBytes) {
		size += len(l.batches[end].Bytes)
		end++
	}
	return Slice{Bounds: l.bounds, Batches: slices.Clone(l.batches[first:end])}, inTail
}

// available counts the bytes that are there for the spans, without visiting each batch. ok is false
// if the tail does not have the batches of one of the spans.
func (t *tail) available(spans []Span) (n int64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range spans {
		l := t.partitions[s.Partition]
		switch {
		case l == nil || s.From > l.bounds.Next || s.From < l.bounds.First:
			return 0, false
		case s.From >= l.bounds.Stable():
			continue // a transaction that is open does not wake its readers with each append
		case len(l.batches) == 0 || s.From < l.batches[0].Base:
			return 0, false
		}
		first := l.holding(s.From)
		n += min(l.sums[len(l.sums)-1]-l.sums[first]+int64(len(l.batches[first].Bytes)), int64(max(s.MaxBytes, 0)))
	}
	return n, true
}

// holding returns the index of the cached batch that holds from. One of the cached batches must
// hold it.
func (l *partitionTail) holding(from Offset) int {
	first, found := slices.BinarySearchFunc(l.batches, from, func(b Placed, o Offset) int { return int(b.Base - o) })
	if !found {
		first-- // the batch that holds From begins below it
	}
	return first
}

// watch sends to ch whenever one of the partitions gets records or is deleted, or the incarnation
// changes, until unwatch.
func (t *tail) watch(spans []Span, ch chan<- struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range spans {
		w := t.waiters[s.Partition]
		if w == nil {
			w = make(map[chan<- struct{}]struct{})
			t.waiters[s.Partition] = w
		}
		w[ch] = struct{}{}
	}
}

func (t *tail) unwatch(spans []Span, ch chan<- struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range spans {
		w := t.waiters[s.Partition]
		if delete(w, ch); len(w) == 0 {
			delete(t.waiters, s.Partition)
		}
	}
}

// The functions below need t.mu held.

func (t *tail) partition(p Partition) *partitionTail {
	l := t.partitions[p]
	if l == nil {
		l = &partitionTail{bounds: Bounds{Partition: p}}
		t.partitions[p] = l
	}
	return l
}

// skipTo raises a partition's end past batches that are not cached, and drops the cached ones: they
// must be contiguous to the end.
func (t *tail) skipTo(l *partitionTail, next Offset) {
	t.drop(l, len(l.batches))
	t.setEnd(l, next)
	t.wake(l.bounds.Partition)
}

// setEnd sets the end. Before that it saves the old end for the current rewind check, once for each
// check.
func (t *tail) setEnd(l *partitionTail, next Offset) {
	if l.check != t.checks {
		l.check, l.nextAtCheck = t.checks, l.bounds.Next
	}
	l.bounds.Next = next
}

func (t *tail) cache(l *partitionTail, b Placed) {
	sum := int64(len(b.Bytes))
	if n := len(l.sums); n > 0 {
		sum += l.sums[n-1]
	}
	l.batches, l.sums = append(l.batches, b), append(l.sums, sum)
	t.fifo = append(t.fifo, l)
	t.bytes += int64(len(b.Bytes)) + placedCost
}

// drop removes a partition's n oldest batches from the cache. It leaves their elements in fifo, and
// counts them as stale.
func (t *tail) drop(l *partitionTail, n int) {
	for i := range n {
		t.bytes -= int64(len(l.batches[i].Bytes)) + placedCost
		l.batches[i] = Placed{} // frees the bytes
	}
	l.batches, l.sums = l.batches[n:], l.sums[n:]
	l.stale += n
	t.stale += n
}

// evict drops the oldest batches of all partitions until the cache is within its limit.
func (t *tail) evict() {
	if t.stale > len(t.fifo)/2 {
		t.fifo = slices.DeleteFunc(t.fifo, t.skipStale)
	}
	for t.bytes > t.limit {
		l := t.fifo[0]
		t.fifo[0] = nil
		t.fifo = t.fifo[1:]
		if !t.skipStale(l) {
			t.drop(l, 1)
			t.skipStale(l) // drop has counted the element as stale, and it is out of fifo now
		}
	}
}

// skipStale reports whether the partition's oldest element in fifo is stale, and if so uncounts it.
func (t *tail) skipStale(l *partitionTail) bool {
	if l.stale == 0 {
		return false
	}
	l.stale--
	t.stale--
	return true
}

// raiseFirst raises First, and drops the batches that are below it as a whole.
func (t *tail) raiseFirst(l *partitionTail, first Offset) {
	if first <= l.bounds.First {
		return
	}
	l.bounds.First = first
	n := 0
	for n < len(l.batches) && l.batches[n].End() <= first {
		n++
	}
	t.drop(l, n)
}

func (t *tail) wake(p Partition) {
	for ch := range t.waiters[p] {
		signal(ch)
	}
	if len(t.watches) == 0 {
		return
	}
	if id, known := t.topicOf(p); known {
		for w := range t.watches[id] {
			signal(w.moved)
		}
	}
}

func (t *tail) wakeWatches() {
	for _, watches := range t.watches {
		for w := range watches {
			signal(w.moved)
		}
	}
}

func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default: // a wake-up is in the channel already
	}
}
