package eventlog

import (
	"slices"
	"sync"
)

// tail keeps what is known of every partition: its bounds, its recent batches, and who waits for more.
// A reader near the end is served from here and never touches the store.
//
//	partition   First ............... batches[0].Base ............ Next
//	            |---- in the store ----|---- here and in the store ---|
type tail struct {
	mu    sync.Mutex // guards everything below
	lanes map[Partition]*lane
	// Beside the lanes, so that a reader who waits is woken whatever becomes of a lane.
	waiters map[Partition]map[chan<- struct{}]struct{}

	fifo  []*lane // one mention per batch kept, oldest first: who gives way next
	gone  int     // mentions in fifo of batches that were dropped out of turn
	bytes int64
	limit int64
	life  int64 // goes up with each reset: what was read before belongs to another incarnation of the store
	looks int64 // goes up with each beginLook
}

type lane struct {
	bounds  Bounds
	batches []Placed // neighbours, ending at bounds.Next
	gone    int      // how many of its mentions in fifo, the oldest, are of batches that were dropped out of turn
	floor   Offset   // bounds.Next before its first change since look began
	look    int64    // the look that floor belongs to
}

// placedCost is about what keeping a batch costs beside its bytes.
const placedCost = 128

func newTail(limit int64) *tail {
	return &tail{lanes: make(map[Partition]*lane), waiters: make(map[Partition]map[chan<- struct{}]struct{}), limit: limit}
}

// append adds batches that this process just made durable, and wakes who waits for them.
func (t *tail) append(placed []Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range placed {
		l := t.lane(b.Partition)
		end := b.Base + Offset(b.Records)
		if end <= l.bounds.Next {
			continue // opens its partition; or the follower has seen past it, and readers find it in the store
		}
		if b.Base != l.bounds.Next {
			t.drop(l, len(l.batches)) // another process wrote in between
		}
		t.raise(l, end)
		l.bounds.Bytes += int64(len(b.Bytes))
		t.keep(l, b)
		t.wake(l.bounds.Partition)
	}
	t.evict()
}

// age names the incarnation of the store that the tail shows, to this process alone.
func (t *tail) age() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.life
}

// reset forgets everything, and begins with bounds of another incarnation of the store. All readers who wait are woken.
func (t *tail) reset(all []Bounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lanes, t.fifo, t.gone, t.bytes = make(map[Partition]*lane), nil, 0, 0
	t.life++
	for _, b := range all {
		t.lane(b.Partition).bounds = b
	}
	for p := range t.waiters {
		t.wake(p)
	}
}

// ends returns the age, and where partitions end as far as is known.
func (t *tail) ends(ps []Partition) (life int64, ends []Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ends = make([]Offset, len(ps))
	for i, p := range ps {
		if l := t.lanes[p]; l != nil {
			ends[i] = l.bounds.Next
		}
	}
	return t.life, ends
}

// beginLook is called before the store is asked for what lost judges. There is one at a time.
func (t *tail) beginLook() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.looks++
}

// lost tells whether the store shows less than was known of it when the look began. Less than is known by now may only be older than our own
// append.
func (t *tail) lost(all []Bounds) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(all, func(b Bounds) bool {
		l := t.lanes[b.Partition]
		if l == nil {
			return false
		}
		if l.look == t.looks {
			return b.Next < l.floor
		}
		return b.Next < l.bounds.Next
	})
}

// follow takes in bounds that the store reported at an age.
func (t *tail) follow(life int64, b Bounds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if life != t.life {
		return
	}
	l := t.lane(b.Partition)
	if b.Next < l.bounds.Next {
		// An older report than our own append; see lost. First never goes down, so it is good all the same.
		t.raiseFirst(l, b.First)
		return
	}
	if b.Next > l.bounds.Next {
		t.advance(l, b.Next)
	}
	l.bounds.Bytes = b.Bytes
	t.raiseFirst(l, b.First)
}

// reach takes in that a partition goes up to next at least.
func (t *tail) reach(p Partition, next Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lane(p); next > l.bounds.Next {
		t.advance(l, next)
	}
}

// adopt keeps batches that were read from the store, if they are the newest and nothing newer is kept.
// So the readers behind the first one of another process's appends find them here.
func (t *tail) adopt(life int64, placed []Placed) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if life != t.life {
		return
	}
	last := placed[len(placed)-1]
	l := t.lanes[last.Partition]
	if l == nil || len(l.batches) > 0 || last.Base+Offset(last.Records) != l.bounds.Next {
		return
	}
	for _, b := range placed {
		t.keep(l, b)
	}
	t.evict()
}

// trim raises First.
func (t *tail) trim(p Partition, before Offset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[p]; l != nil {
		t.raiseFirst(l, min(before, l.bounds.Next))
	}
}

// forget drops the partitions that are gone, and wakes their readers so that they learn of it.
func (t *tail) forget(gone func(Partition) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p, l := range t.lanes {
		if gone(p) {
			t.drop(l, len(l.batches))
			delete(t.lanes, p)
		}
	}
	for p := range t.waiters {
		if gone(p) {
			t.wake(p)
		}
	}
}

// known returns the bounds as far as this process has seen them.
func (t *tail) known(p Partition) (Bounds, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.lanes[p]; l != nil {
		return l.bounds, true
	}
	return Bounds{Partition: p}, false
}

// where says who can answer a span.
type where int

const (
	inStore where = iota // the store
	unheard              // the store: nothing is known here of what the partition holds there
	inTail               // the slice given has it
	atEnd                // nobody yet: the reader has read all there is
	trimmed              // nobody any more: the offset is below First
	deleted              // nobody any more: the topic is gone
)

// read answers one span from memory where it can, with up to its MaxBytes and at least one batch.
func (t *tail) read(s Span) (Slice, where) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[s.Partition]
	switch {
	case l == nil || s.From > l.bounds.Next:
		return Slice{Bounds: Bounds{Partition: s.Partition}}, unheard
	case s.From < l.bounds.First:
		return Slice{Bounds: l.bounds}, trimmed
	case s.From == l.bounds.Next:
		return Slice{Bounds: l.bounds}, atEnd
	case len(l.batches) == 0 || s.From < l.batches[0].Base:
		return Slice{Bounds: l.bounds}, inStore
	}
	first, found := slices.BinarySearchFunc(l.batches, s.From, func(b Placed, o Offset) int { return int(b.Base - o) })
	if !found {
		first-- // the batch that holds From begins before it
	}
	end, size := first, 0
	for end < len(l.batches) && (end == first || size+len(l.batches[end].Bytes) <= s.MaxBytes) {
		size += len(l.batches[end].Bytes)
		end++
	}
	return Slice{Bounds: l.bounds, Batches: slices.Clone(l.batches[first:end])}, inTail
}

// watch makes ch receive whenever one of the partitions moves, until unwatch.
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

// The rest needs t.mu held.

func (t *tail) lane(p Partition) *lane {
	l := t.lanes[p]
	if l == nil {
		l = &lane{bounds: Bounds{Partition: p}}
		t.lanes[p] = l
	}
	return l
}

// advance moves a lane's end past appends whose batches are not here.
func (t *tail) advance(l *lane, next Offset) {
	t.drop(l, len(l.batches))
	t.raise(l, next)
	t.wake(l.bounds.Partition)
}

func (t *tail) raise(l *lane, next Offset) {
	if l.look != t.looks {
		l.look, l.floor = t.looks, l.bounds.Next
	}
	l.bounds.Next = next
}

func (t *tail) keep(l *lane, b Placed) {
	l.batches = append(l.batches, b)
	t.fifo = append(t.fifo, l)
	t.bytes += int64(len(b.Bytes)) + placedCost
}

// drop lets go of a lane's oldest n batches out of turn.
func (t *tail) drop(l *lane, n int) {
	for i := range n {
		t.bytes -= int64(len(l.batches[i].Bytes)) + placedCost
		l.batches[i] = Placed{} // let go of the bytes
	}
	l.batches = l.batches[n:]
	l.gone += n
	t.gone += n
}

// evict drops the oldest batches of all until the rest fits.
func (t *tail) evict() {
	if t.gone > len(t.fifo)/2 {
		t.fifo = slices.DeleteFunc(t.fifo, t.passed)
	}
	for t.bytes > t.limit {
		l := t.fifo[0]
		t.fifo[0] = nil
		t.fifo = t.fifo[1:]
		if !t.passed(l) {
			t.drop(l, 1)
			t.passed(l) // this was its mention
		}
	}
}

// passed reports whether the lane's oldest mention is of a batch that is gone, and takes it out of the count.
func (t *tail) passed(l *lane) bool {
	if l.gone == 0 {
		return false
	}
	l.gone--
	t.gone--
	return true
}

func (t *tail) raiseFirst(l *lane, first Offset) {
	if first <= l.bounds.First {
		return
	}
	l.bounds.First = first
	n := 0
	for n < len(l.batches) && l.batches[n].Base+Offset(l.batches[n].Records) <= first {
		n++
	}
	t.drop(l, n)
}

func (t *tail) wake(p Partition) {
	for ch := range t.waiters[p] {
		select {
		case ch <- struct{}{}:
		default: // it has a wake-up waiting already
		}
	}
}
