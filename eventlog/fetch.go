package eventlog

import (
	"context"
	"fmt"
	"math/rand/v2"
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
// outside the bounds.
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
	size := 0
	var far []int // spans that only the store can answer
	for i, s := range w.Spans {
		slice, at := l.tail.read(s, min(s.MaxBytes, max(budget-size, 0)))
		switch at {
		case inStore:
			far = append(far, i)
			got[i].Bounds, _ = l.tail.known(s.Partition) // for one that the budget leaves out of the trip
			continue
		case trimmed:
			slice.Err = outside(s, slice.Bounds)
			enough = true
		case inTail:
			if size >= budget || s.MaxBytes <= 0 {
				slice.Batches = nil // its turn comes with the next fetch
			}
		}
		if n := bytesIn(slice.Batches); n > 0 {
			size += n
			l.cfg.Observer.Fetched(n, true)
		}
		got[i] = slice
	}
	if len(far) > 0 && size < budget {
		more, failed, err := l.fetchFar(ctx, w.Spans, far, budget-size, got)
		if err != nil && size == 0 {
			return nil, false, err
		}
		size += more
		enough = enough || failed || err != nil
	}
	return got, enough || size >= max(w.MinBytes, 1), nil
}

// fetchFar answers the spans numbered far from the store, in one trip, or from what was read ahead. It begins anywhere among them, so that a budget too small
// for all starves none.
func (l *Log) fetchFar(ctx context.Context, spans []Span, far []int, budget int, got []Slice) (size int, failed bool, err error) {
	start := rand.IntN(len(far))
	asked := make([]int, 0, len(far))
	trip := make([]Span, 0, len(far))
	for k := range far {
		i := far[(start+k)%len(far)]
		s := spans[i]
		s.MaxBytes = max(min(s.MaxBytes, budget), 0)
		budget -= s.MaxBytes
		asked, trip = append(asked, i), append(trip, s)
	}
	slices, err := l.ahead.answer(ctx, trip)
	if err != nil {
		return 0, false, err
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
			size += n
			l.cfg.Observer.Fetched(n, false)
			l.tail.adopt(slice.Batches)
		}
		got[asked[k]] = slice
	}
	return size, failed, nil
}

// read is one trip to the store. What it says of bounds is news for the tail.
func (l *Log) read(ctx context.Context, spans []Span) ([]Slice, error) {
	slices, err := l.store.Read(ctx, spans)
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
