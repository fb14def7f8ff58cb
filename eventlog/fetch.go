package eventlog

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Want says what a reader is after.
type Want struct {
	Spans    []Span        // MaxBytes of each bounds what comes from that partition
	MinBytes int           // wait for so many bytes; 0 and 1 wait for anything
	MaxBytes int           // bound of the whole answer; 0: no bound beside those of the spans
	MaxWait  time.Duration // 0: do not wait
}

// Fetch returns a slice for each span, in their order, with the bounds known and the batches from the one holding
// Span.From onwards, within one Budget. Slice.Err is ErrNoPartition, a *RangeError for an offset
// outside the bounds, or a *DamagedError. What MaxBytes allows goes to the first spans first (KIP-74): who asks for many asks for them in turn.
//
// A reader near the end is served from memory. All others share one trip to the store. When that trip fails, who
// could be served from memory still is. While there are fewer than MinBytes, Fetch waits for appends, at most MaxWait and until ctx ends;
// the end of ctx is not an error. The bytes are shared with other readers: they must not be changed.
func (l *Log) Fetch(ctx context.Context, w Want) ([]Slice, error) {
	got, enough, err := l.gather(ctx, w)
	if enough || err != nil || w.MaxWait <= 0 {
		return got, err
	}
	moved := make(chan struct{}, 1)
	l.tail.watch(w.Spans, moved)
	defer l.tail.unwatch(w.Spans, moved)
	patience := time.NewTimer(w.MaxWait)
	defer patience.Stop()
	for {
		// Look again: what came before the watch began woke nobody.
		got, enough, err = l.gather(ctx, w)
		if enough || err != nil {
			return got, err
		}
		select {
		case <-moved:
		case <-patience.C:
			return got, nil
		case <-ctx.Done():
			return got, nil
		}
	}
}

// gather collects what is there now: from the tail, else from what was read ahead, else from the store, all in one trip. It is enough when
// MinBytes are reached or when the caller must hear of an error.
func (l *Log) gather(ctx context.Context, w Want) (got []Slice, enough bool, err error) {
	most := w.MaxBytes
	if most <= 0 {
		most = math.MaxInt
	}
	budget := NewBudget(most)
	got = make([]Slice, len(w.Spans))
	var far []distant
	first := false // the first batch of all is to come from the store
	for i, s := range w.Spans {
		slice, at := l.near(s, &budget)
		got[i] = slice
		if at != inStore {
			continue
		}
		d := distant{index: i, span: s}
		if !budget.Full() {
			if d.foreseen, err = l.ahead.take(ctx, s); err != nil {
				break
			}
		}
		if d.foreseen != nil && d.foreseen.done != nil {
			got[i] = d.foreseen.slice.within(s, &budget)
		} else {
			first = first || !budget.any
			d.span.MaxBytes, d.asks = budget.Reserve(s.MaxBytes), true
		}
		far = append(far, d)
	}
	if err == nil {
		err = l.fetchFar(ctx, far, got, first)
	}
	l.fillUp(w.Spans, far, most, got)
	size := 0
	for i, slice := range got {
		n := bytesIn(slice.Batches)
		size += n
		enough = enough || slice.Err != nil
		if n > 0 {
			l.cfg.Observer.Fetched(n, !slices.ContainsFunc(far, func(d distant) bool { return d.index == i }))
		}
	}
	if err != nil && size == 0 {
		return nil, false, err
	}
	return got, enough || err != nil || size >= max(w.MinBytes, 1), nil
}

// distant is a span that is not in the tail.
type distant struct {
	index    int // in Want.Spans
	span     Span
	asks     bool       // for the trip to the store
	foreseen *foresight // that a reader might come here; nil: nobody knew
}

// near answers a span from memory where it can.
func (l *Log) near(s Span, budget *Budget) (Slice, where) {
	if l.catalog.Load().deleted(s.Partition) {
		return Slice{Bounds: Bounds{Partition: s.Partition}, Err: ErrNoPartition}, deleted
	}
	slice, at := l.tail.read(s)
	switch at {
	case trimmed:
		slice.Err = outside(s, slice.Bounds)
	case inTail:
		slice = slice.within(s, budget)
	}
	return slice, at
}

// fetchFar makes the trip to the store for those who ask for it; first says that the very first batch may be larger than what was reserved.
// Then it reads ahead.
func (l *Log) fetchFar(ctx context.Context, far []distant, got []Slice, first bool) error {
	life := l.tail.age()
	var trip []Span
	most := 0
	for _, d := range far {
		if d.asks {
			trip = append(trip, d.span)
			most += d.span.MaxBytes // the sum was within one budget
		}
	}
	var read []Slice
	if most > 0 || len(trip) == len(far) && len(trip) > 0 {
		var err error
		if read, err = l.read(ctx, trip, most); err != nil {
			return err
		}
	}
	for _, d := range far {
		slice := got[d.index]
		if d.asks {
			if len(read) == 0 {
				continue
			}
			slice, read = read[0], read[1:]
			if !first && bytesIn(slice.Batches) > d.span.MaxBytes {
				slice.Batches = nil // another span has the batch that may be larger
			}
			if slice.Err == nil && (d.span.From < slice.Bounds.First || d.span.From > slice.Bounds.Next) {
				slice.Err = outside(d.span, slice.Bounds)
			}
		}
		if slice.Err == nil {
			slice.Bounds, _ = l.tail.known(d.span.Partition) // never older than what another reader was told
		}
		if len(slice.Batches) > 0 {
			l.tail.adopt(life, slice.Batches)
		}
		got[d.index] = slice
	}
	l.ahead.goOn(context.WithoutCancel(ctx), far, got)
	return nil
}

// fillUp gives those that are in memory what was reserved for the far, and not needed.
func (l *Log) fillUp(spans []Span, far []distant, most int, got []Slice) {
	if len(far) == 0 {
		return
	}
	left := most
	for _, slice := range got {
		left -= bytesIn(slice.Batches)
	}
	isFar := make(map[int]bool, len(far))
	for _, d := range far {
		isFar[d.index] = true
	}
	any := left < most
	for i := far[0].index + 1; i < len(spans) && left > 0; i++ {
		had := bytesIn(got[i].Batches)
		if isFar[i] || had >= spans[i].MaxBytes {
			continue
		}
		if slice, at := l.near(spans[i], &Budget{left: had + left, any: any}); at == inTail {
			left += had - bytesIn(slice.Batches)
			got[i], any = slice, any || len(slice.Batches) > 0
		}
	}
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

// within returns the slice with those batches that a budget has for the span.
func (s Slice) within(span Span, budget *Budget) Slice {
	budget.Begin(span.MaxBytes)
	n := 0
	for n < len(s.Batches) && span.MaxBytes > 0 && budget.Take(len(s.Batches[n].Bytes)) {
		n++
	}
	s.Batches = slices.Clone(s.Batches[:n])
	return s
}

func bytesIn(batches []Placed) (n int) {
	for _, b := range batches {
		n += len(b.Bytes)
	}
	return n
}
