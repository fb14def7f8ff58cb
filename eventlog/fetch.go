package eventlog

import (
	"context"
	"fmt"
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
// Span.From onwards; the first batch comes however large it is. Slice.Err is ErrNoPartition, or a *RangeError for an offset
// outside the bounds. What MaxBytes allows goes to the first spans first (KIP-74): who asks for many asks for them in turn.
//
// A reader near the end is served from memory. All others share one trip to the store. When that trip fails, who
// could be served from memory still is. While there are fewer than MinBytes, Fetch waits for appends, at most MaxWait and until ctx ends;
// the end of ctx is not an error. The bytes are shared with other readers: they must not be changed.
func (l *Log) Fetch(ctx context.Context, w Want) ([]Slice, error) {
	got, enough, err := l.fetchOnce(ctx, w)
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
		got, enough, err = l.fetchOnce(ctx, w)
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

// fetchOnce gathers what is there now. It is enough when MinBytes are reached or when the caller must hear of an error.
func (l *Log) fetchOnce(ctx context.Context, w Want) (got []Slice, enough bool, err error) {
	budget := w.MaxBytes
	if budget <= 0 {
		budget = int(^uint(0) >> 1)
	}
	got = make([]Slice, len(w.Spans))
	left := budget
	var far []int // spans that only the store can answer
	var trip []Span
	for i, s := range w.Spans {
		if slice, at := l.near(s, left); at != inStore {
			enough = enough || slice.Err != nil
			left = max(left-bytesIn(slice.Batches), 0)
			got[i] = slice
			continue
		}
		got[i].Bounds, _ = l.tail.known(s.Partition) // for one that the budget leaves out of the trip
		if len(far) == 0 && left == 0 {
			continue
		}
		s.MaxBytes = max(min(s.MaxBytes, left), 0)
		left -= s.MaxBytes
		far, trip = append(far, i), append(trip, s)
	}
	if len(far) > 0 {
		var failed bool
		failed, err = l.fetchFar(ctx, trip, far, got, budget)
		enough = enough || failed || err != nil
		l.fillUp(w.Spans, far, budget, got)
	}
	size := 0
	for i, slice := range got {
		n := bytesIn(slice.Batches)
		size += n
		if _, isFar := slices.BinarySearch(far, i); n > 0 && !isFar {
			l.cfg.Observer.Fetched(n, true)
		}
	}
	if err != nil && size == 0 {
		return nil, false, err
	}
	return got, enough || size >= max(w.MinBytes, 1), nil
}

// near answers a span from memory where it can, with about as many bytes as are left.
func (l *Log) near(s Span, left int) (Slice, where) {
	if l.catalog.Load().deleted(s.Partition) {
		return Slice{Bounds: Bounds{Partition: s.Partition}, Err: ErrNoPartition}, deleted
	}
	slice, at := l.tail.read(s, min(s.MaxBytes, left))
	switch {
	case at == trimmed:
		slice.Err = outside(s, slice.Bounds)
	case left <= 0 || s.MaxBytes <= 0:
		slice.Batches = nil // its turn comes with the next fetch
	}
	return slice, at
}

// fetchFar answers the spans numbered far from the store, in one trip, or from what was read ahead.
func (l *Log) fetchFar(ctx context.Context, trip []Span, far []int, got []Slice, budget int) (failed bool, err error) {
	slices, err := l.ahead.answer(ctx, trip, budget)
	if err != nil {
		return false, err
	}
	for k, slice := range slices {
		s := trip[k]
		if slice.Err == nil && (s.From < slice.Bounds.First || s.From > slice.Bounds.Next) {
			slice.Err = outside(s, slice.Bounds)
		}
		failed = failed || slice.Err != nil
		if slice.Err == nil {
			slice.Bounds, _ = l.tail.known(s.Partition) // never older than what another reader was told
		}
		if n := bytesIn(slice.Batches); n > 0 {
			l.cfg.Observer.Fetched(n, false)
			l.tail.adopt(slice.Batches)
		}
		got[far[k]] = slice
	}
	return failed, nil
}

// fillUp gives those that are in memory what was kept for the far, and not needed.
func (l *Log) fillUp(spans []Span, far []int, budget int, got []Slice) {
	left := budget
	for _, slice := range got {
		left -= bytesIn(slice.Batches)
	}
	for i := far[0] + 1; i < len(spans) && left > 0; i++ {
		had := bytesIn(got[i].Batches)
		if _, isFar := slices.BinarySearch(far, i); isFar || had >= spans[i].MaxBytes {
			continue
		}
		if slice, at := l.near(spans[i], had+left); at == inTail {
			left += had - bytesIn(slice.Batches)
			got[i] = slice
		}
	}
}

// read is one trip to the store. What it says of bounds is news for the tail.
func (l *Log) read(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error) {
	slices, err := l.store.Read(ctx, spans, maxBytes)
	if err := l.failed("read", err); err != nil {
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), err)
	}
	for _, s := range slices {
		if s.Err == nil {
			l.tail.follow(s.Bounds)
		}
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
