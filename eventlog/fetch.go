package eventlog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weir-log/weir/internal/budget"
)

// Want says what a reader is after.
type Want struct {
	Spans    []Span        // MaxBytes of each bounds what comes from that partition
	MinBytes int           // wait for so many bytes; 0 and 1 wait for anything
	MaxBytes int           // bound of the whole answer; 0: no bound beside those of the spans
	MaxWait  time.Duration // 0: do not wait

	// Stop ends the wait, as the end of MaxWait does; nil: nothing does.
	Stop <-chan struct{}

	// Claim counts the batches of the answer: when Fetch returns it holds as many bytes more as they have, and whoever asked releases it
	// when the answer was sent. nil: nobody counts.
	Claim *budget.Claim
}

// scant is the most bytes of an answer where many are being sent: answers get small before anybody waits for others.
const scant = 64 << 10

// Fetch returns a slice for each span, in their order, with the bounds known and the batches from the one holding
// Span.From onwards, within one Budget. Slice.Err is ErrNoPartition, a *RangeError for an offset
// outside the bounds, or a *DamagedError. What MaxBytes allows goes to the first spans first (KIP-74): who asks for many asks for them in turn.
//
// A read goes one way: the tail, what was prefetched, the store. All that is in neither of the first two shares one trip. When that
// trip fails, who could be served from memory still is. While there are fewer than MinBytes, Fetch waits for appends, at most MaxWait and until
// ctx ends; the end of ctx is not an error then. The bytes are shared with other readers: they must not be changed.
//
// With a Claim, what the store is to bring is claimed before the trip, and what comes from memory once it is known how much that is. Where
// there is no memory for it, the answer gets small; where there is none for a small one, Fetch waits in line and holds nothing meanwhile. It fails
// with ErrCrowded when ctx ends in the line. While Fetch waits for appends it holds nothing either.
func (l *Log) Fetch(ctx context.Context, w Want) ([]Slice, error) {
	w.MinBytes = min(max(w.MinBytes, 1), w.most()) // or it waited for what cannot come
	a, enough, err := l.gather(ctx, w)
	if enough || err != nil || w.MaxWait <= 0 {
		return l.tell(a), err
	}
	moved := make(chan struct{}, 1)
	l.tail.watch(w.Spans, moved)
	defer l.tail.unwatch(w.Spans, moved)
	patience := time.NewTimer(w.MaxWait)
	defer patience.Stop()
	for waits := true; ; {
		// Look again: what came before the watch began woke nobody.
		w.Claim.Shrink(a.claimed)
		before := a.bounds()
		a, enough, err = l.gather(ctx, w)
		if err != nil && ctx.Err() != nil && !waits {
			return before, nil
		}
		if enough || err != nil || !waits {
			return l.tell(a), err
		}
		select {
		case <-moved:
		case <-patience.C:
			waits = false
		case <-w.Stop:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
}

// most is how many bytes can come, but for a first batch that is larger.
func (w Want) most() int {
	all := math.MaxInt
	if w.MaxBytes > 0 {
		all = w.MaxBytes
	}
	n := 0
	for _, s := range w.Spans {
		if n += max(s.MaxBytes, 0); n < 0 || n >= all {
			return all
		}
	}
	return n
}

// answer is what a fetch found.
type answer struct {
	slices  []Slice
	far     []distant // the spans that the tail did not have
	size    int       // bytes of batches
	claimed int64     // of Want.Claim
	scanty  bool      // it was cut for lack of memory
}

// bounds are the slices without their batches.
func (a answer) bounds() []Slice {
	for i := range a.slices {
		a.slices[i].Batches = nil
	}
	return a.slices
}

// unread says why there is nothing of the spans whose bounds nobody knows: without an error they would look like empty partitions.
func (a answer) unread(err error) {
	for _, d := range a.far {
		if s := &a.slices[d.index]; d.unheard && s.Err == nil && len(s.Batches) == 0 {
			s.Err = err
		}
	}
}

// cut leaves of the slices what an answer of so many bytes may have, in the order of the spans.
func (a *answer) cut(spans []Span, most int) {
	allowed := NewBudget(most)
	a.size = 0
	for i := range a.slices {
		s := &a.slices[i]
		n := allowed.fit(spans[i], s.Batches)
		clear(s.Batches[n:]) // they are this answer's own, and what they name is not to be kept alive
		s.Batches = s.Batches[:n]
		a.size += bytesIn(s.Batches)
	}
}

// tell tells the observer where an answer came from.
func (l *Log) tell(a answer) []Slice {
	for i, slice := range a.slices {
		if n := bytesIn(slice.Batches); n > 0 {
			l.cfg.Observer.Fetched(n, !slices.ContainsFunc(a.far, func(d distant) bool { return d.index == i }))
		}
	}
	return a.slices
}

// gather collects what is there now, and claims memory for it. It is enough when MinBytes are reached, or all that the answer may have, or when the
// caller must hear of an error.
func (l *Log) gather(ctx context.Context, w Want) (a answer, enough bool, err error) {
	before := w.Claim.Held()
	held := func() int64 { return w.Claim.Held() - before } // by this answer
	most := w.most()
	for {
		lacks := int64(0)
		a, lacks, err = l.collect(ctx, w, most, held())
		if err == nil && lacks == 0 {
			lacks = a.claim(w, most, held())
		}
		if err != nil || lacks == 0 {
			break
		}
		// There is no memory for even a small one.
		a.bounds()
		w.Claim.Shrink(held())
		_, err = w.Claim.GrowUntil(ctx, w.Stop, lacks)
		switch {
		case errors.Is(err, budget.ErrStopped):
			w.Claim.Shrink(held())
			a.unread(ErrCrowded)
			return a, true, nil
		case err != nil:
			w.Claim.Shrink(held())
			return answer{}, false, fmt.Errorf("%w: %d bytes are wanted (%w)", ErrCrowded, lacks, err)
		}
		most = int(lacks)
	}
	if err != nil {
		w.Claim.Shrink(held())
		return answer{}, false, err
	}
	w.Claim.Shrink(held() - int64(a.size))
	a.claimed = held()
	l.prefetch.goOn(context.WithoutCancel(ctx), a.far, a.slices)
	enough = a.scanty || a.size > 0 && a.size >= min(w.MinBytes, most)
	for _, slice := range a.slices {
		enough = enough || slice.Err != nil
	}
	return a, enough, nil
}

// claim cuts an answer to what there is memory for, and claims that. Where there is none for even a small one, it tells how much that lacks.
func (a *answer) claim(w Want, most int, held int64) (lacks int64) {
	a.cut(w.Spans, most)
	if w.Claim.TryGrow(int64(a.size)-held, false) {
		return 0
	}
	a.cut(w.Spans, min(most, scant))
	a.scanty = true
	if w.Claim.TryGrow(int64(a.size)-held, true) {
		return 0
	}
	return int64(a.size)
}

// distant is a span that is not in the tail.
type distant struct {
	index    int // in Want.Spans
	span     Span
	unheard  bool        // its bounds are not known here
	asks     bool        // for the trip to the store
	expected *prefetched // that a reader might come here; nil: nobody knew
}

// collect finds what an answer of so many bytes may have, and more: it is to be cut. lacks is how much memory has to be claimed before the trip to
// the store can be made. It fails when the store does and memory has nothing.
func (l *Log) collect(ctx context.Context, w Want, most int, held int64) (a answer, lacks int64, err error) {
	a.slices = make([]Slice, len(w.Spans))
	allowed := NewBudget(most)
	trip := 0 // bytes
	for i, s := range w.Spans {
		slice, at := l.near(s)
		if at == inStore || at == unheard {
			d := distant{index: i, span: s, unheard: at == unheard}
			if err == nil && !allowed.Full() {
				d.expected, err = l.prefetch.take(ctx, s)
			}
			if d.expected != nil && d.expected.done != nil {
				slice = d.expected.slice
			} else {
				d.span.MaxBytes, d.asks = allowed.Reserve(s.MaxBytes), true
				trip += d.span.MaxBytes
			}
			a.far = append(a.far, d)
		}
		allowed.fit(s, slice.Batches)
		a.slices[i] = slice
	}
	if more := int64(trip) - held; err == nil && !w.Claim.TryGrow(more, false) {
		return a, int64(min(trip, scant)), nil
	}
	if err == nil {
		err = l.readFar(ctx, &a, trip)
	}
	if err == nil {
		return a, 0, nil
	}
	a.unread(err)
	if !slices.ContainsFunc(a.slices, func(s Slice) bool { return len(s.Batches) > 0 }) {
		return a, 0, err
	}
	return a, 0, nil
}

// near answers a span from the tail where it can.
func (l *Log) near(s Span) (Slice, where) {
	if l.catalog.Load().deleted(s.Partition) {
		return Slice{Bounds: Bounds{Partition: s.Partition}, Err: ErrNoPartition}, deleted
	}
	slice, at := l.tail.read(s)
	if at == trimmed {
		slice.Err = outside(s, slice.Bounds)
	}
	return slice, at
}

// readFar makes the trip to the store, of so many bytes, for those who ask for it, and for those whose bounds nobody has heard of.
func (l *Log) readFar(ctx context.Context, a *answer, most int) error {
	life := l.tail.age()
	var trip []Span
	var index []int
	for _, d := range a.far {
		if d.asks && (d.span.MaxBytes > 0 || d.unheard) {
			trip, index = append(trip, d.span), append(index, d.index)
		}
	}
	if len(trip) > 0 {
		read, err := l.read(ctx, trip, most)
		if err != nil {
			return err
		}
		for i, slice := range read {
			if s := trip[i]; slice.Err == nil && (s.From < slice.Bounds.First || s.From > slice.Bounds.Next) {
				slice.Err = outside(s, slice.Bounds)
			}
			a.slices[index[i]] = slice
		}
	}
	for _, d := range a.far {
		slice := &a.slices[d.index]
		if newer, heard := l.tail.known(d.span.Partition); heard && slice.Err == nil {
			slice.Bounds = newer // never older than what another reader was told
		}
		if len(slice.Batches) > 0 {
			l.tail.adopt(life, slice.Batches)
		}
	}
	return nil
}

// read is one trip to the store. What it says of bounds is news for the tail.
func (l *Log) read(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error) {
	ps := make([]Partition, len(spans))
	for i, s := range spans {
		ps[i] = s.Partition
	}
	life, known := l.tail.ends(ps)
	slices, err := l.store.Read(ctx, spans, maxBytes)
	if err := l.failed("read", err); err != nil {
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), err)
	}
	first := true
	for i := range slices {
		s := &slices[i]
		if s.Err == nil && s.Bounds.Next < known[i] {
			return nil, fmt.Errorf("read %d partitions: %w", len(spans), l.suspect(ps[i], known[i], s.Bounds.Next))
		}
		if s.Err == nil {
			l.tail.follow(life, s.Bounds)
		}
		came := len(s.Batches) > 0 // and took of the budget, damaged or not
		l.examine(spans[i], s, first)
		first = first && !came && !isDamaged(s.Err)
	}
	if life != l.tail.age() {
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), ErrRewound)
	}
	return slices, nil
}

func outside(s Span, b Bounds) error {
	return &RangeError{Partition: s.Partition, Asked: s.From, First: b.First, Next: b.Next}
}

func bytesIn(batches []Placed) (n int) {
	for _, b := range batches {
		n += len(b.Bytes)
	}
	return n
}
