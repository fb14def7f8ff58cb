package eventlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

// Want is one fetch: what to read, and how long to wait.
type Want struct {
	Spans    []Span        // each with its own limit, Span.MaxBytes
	MinBytes int           // wait for so many bytes; 0 and 1: for any batch
	MaxBytes int           // bound of the whole answer; 0: only the spans have bounds
	MaxWait  time.Duration // 0: do not wait

	// Stop, when closed, ends the wait as MaxWait does. nil: never.
	Stop <-chan struct{}

	// Epoch is the leader epoch in which the caller read the records before its spans, and Fetch
	// sets it to the epoch of its answer. A span that begins past the end of that epoch gets a
	// *RangeError with this end as Next, even if the partition is longer by now: what the caller
	// read past it is lost, and other records have these offsets (KIP-320). nil: no check, the span
	// gets what is there now.
	Epoch *int32

	// Claim is charged with the bytes of the returned batches; the caller releases it after sending
	// the answer. nil: not charged.
	//
	// Memory is claimed before the store call, and for cached batches when their size is known. If
	// memory is short, the answer shrinks to smallAnswer bytes; if even that is not free, Fetch
	// waits for it without holding any, and fails with ErrCrowded when ctx ends. While it waits for
	// appends it holds none either.
	Claim *budget.Claim
}

// smallAnswer is the size in bytes to which answers shrink when memory is short, before readers
// have to wait for memory.
const smallAnswer = 64 << 10

// Fetch returns one slice per span, in order: the known bounds, and the batches from the one that
// holds Span.From. Slice.Err is ErrNoPartition, a *RangeError, a *DamagedError, or why this span
// could not be read, such as ErrUnavailable or ErrCrowded. The first spans get MaxBytes first
// (KIP-74): a caller with many spans should rotate them. All of an answer is of one leader epoch:
// if a new epoch begins meanwhile, Fetch gathers the answer anew.
//
// Fetch reads from the tail, then from the prefetched spans, then the rest from the store in one
// call. If that call fails, spans in memory are still returned. Below MinBytes it waits for appends
// until MaxWait, Stop or ctx ends the wait, which is no error.
//
// Callers must not change the bytes: other readers share them.
func (l *Log) Fetch(ctx context.Context, w Want) ([]Slice, error) {
	w.MinBytes = min(max(w.MinBytes, 1), w.most()) // more than most() can never be reached
	a, enough, err := l.gather(ctx, w)
	if enough || err != nil || w.MaxWait <= 0 {
		return l.observe(a), err
	}
	moved := make(chan struct{}, 1)
	l.tail.watch(w.Spans, moved)
	defer l.tail.unwatch(w.Spans, moved)
	timeout := time.NewTimer(w.MaxWait)
	defer timeout.Stop()
	w.Claim.Shrink(a.claimed)
	before := a.bounds()
	a = answer{}
	for waits := true; ; {
		// The first round finds what was appended before watch. Every append wakes this reader, so
		// it counts the bytes first, and gathers them if they are enough.
		n, counted := l.available(w)
		if !waits || !counted || n >= max(int64(w.MinBytes), 1) {
			a, enough, err = l.gather(ctx, w)
			if err != nil && ctx.Err() != nil && !waits {
				return emptySlices(before), nil
			}
			if enough || err != nil || !waits || counted {
				l.observeDelivery(a)
				return l.observe(a), err
			}
			w.Claim.Shrink(a.claimed)
			before = a.bounds()
			a = answer{}
		}
		select {
		case <-moved:
		case <-timeout.C:
			waits = false
		case <-w.Stop:
			waits = false
		case <-ctx.Done():
			waits = false
		}
	}
}

// available counts the cached bytes that the spans ask for, each up to its MaxBytes. It reports
// false if only gather can find out.
func (l *Log) available(w Want) (n int64, ok bool) {
	catalog := l.catalog.Load()
	if slices.ContainsFunc(w.Spans, func(s Span) bool { return catalog.deleted(s.Partition) }) {
		return 0, false
	}
	if n, ok = l.tail.available(w.Spans); w.Epoch != nil && *w.Epoch != l.LeaderEpoch() {
		return 0, false
	}
	return n, ok
}

// most returns the largest size of the answer in bytes; only a larger first batch may exceed it
// (KIP-74).
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

type answer struct {
	slices    []Slice
	misses    []miss // spans that the tail could not answer
	size      int    // the bytes of the batches
	claimed   int64  // how many bytes of Want.Claim are for this answer
	shortened bool   // it has fewer batches than it could have, because memory was short
}

// dropBatches removes the batches.
func (a answer) dropBatches() {
	for i := range a.slices {
		a.slices[i].Batches = nil
	}
}

// bounds returns the bounds of the slices: what is kept of an answer while Fetch waits.
func (a answer) bounds() []Bounds {
	all := make([]Bounds, len(a.slices))
	for i := range a.slices {
		all[i] = a.slices[i].Bounds
	}
	return all
}

// emptySlices are slices that have no batches.
func emptySlices(all []Bounds) []Slice {
	slices := make([]Slice, len(all))
	for i := range all {
		slices[i].Bounds = all[i]
	}
	return slices
}

// failUnknown sets err on the spans that have neither bounds nor batches: without an error they
// would look like empty partitions.
func (a answer) failUnknown(err error) {
	for _, d := range a.misses {
		if s := &a.slices[d.index]; d.unknown && s.Err == nil && len(s.Batches) == 0 {
			s.Err = err
		}
	}
}

// cut shortens the slices until the answer keeps within the limit most, in bytes; earlier spans
// come first.
func (a *answer) cut(spans []Span, most int) {
	allowed := NewBudget(most)
	a.size = 0
	for i := range a.slices {
		s := &a.slices[i]
		n := allowed.fit(spans[i], s.Batches)
		clear(s.Batches[n:]) // frees the bytes of the dropped batches; no other answer has this slice
		s.Batches = s.Batches[:n]
		a.size += bytesIn(s.Batches)
	}
}

// observe reports each slice's source to the observer, and returns the slices.
func (l *Log) observe(a answer) []Slice {
	for i, slice := range a.slices {
		if n := bytesIn(slice.Batches); n > 0 {
			l.cfg.Observer.Fetched(n, !slices.ContainsFunc(a.misses, func(d miss) bool { return d.index == i }))
		}
	}
	return a.slices
}

// observeDelivery reports how old the newest records are for which a reader has waited.
func (l *Log) observeDelivery(a answer) {
	for _, slice := range a.slices {
		if n := len(slice.Batches); n > 0 {
			if at := int64(slice.Batches[n-1].MaxTime); at != batch.NoTimestamp {
				l.cfg.Observer.Delivered(max(0, time.Since(time.UnixMilli(at))))
			}
		}
	}
}

// gather reads what is there now and claims memory for it. enough: the answer has MinBytes or its
// maximum, or was shortened, or a slice has an error.
func (l *Log) gather(ctx context.Context, w Want) (a answer, enough bool, err error) {
	before := w.Claim.Held()
	held := func() int64 { return w.Claim.Held() - before } // how many bytes this answer has claimed
	most := w.most()
	var in *incarnation
	for {
		lacks := int64(0)
		in = l.incarnation.Load()
		a, lacks, err = l.collect(ctx, w, most, held())
		if in != l.incarnation.Load() {
			continue // the slices may be of different incarnations
		}
		if err == nil && lacks == 0 {
			a.refuseLost(w, in.epochs)
			lacks = a.claim(w, most, held())
		}
		if err != nil || lacks == 0 {
			break
		}
		// There is no memory even for smallAnswer bytes: wait for it, holding none.
		a.dropBatches()
		w.Claim.Shrink(held())
		_, err = w.Claim.GrowUntil(ctx, w.Stop, lacks)
		switch {
		case errors.Is(err, budget.ErrStopped):
			w.Claim.Shrink(held())
			a.failUnknown(ErrCrowded)
			return a, true, nil
		case err != nil:
			w.Claim.Shrink(held())
			return answer{}, false, fmt.Errorf("%w: gave up while it waited for %d bytes of memory (%w)", ErrCrowded, lacks, err)
		}
		most = int(lacks)
	}
	if err != nil {
		w.Claim.Shrink(held())
		return answer{}, false, err
	}
	w.Claim.Shrink(held() - int64(a.size))
	a.claimed = held()
	if w.Epoch != nil {
		*w.Epoch = max(*w.Epoch, in.epochs.newest()) // the caller's epoch is higher if it read from a process that entered a newer epoch earlier
	}
	l.prefetch.prefetchNext(context.WithoutCancel(ctx), a.misses, a.slices)
	enough = a.shortened || a.size > 0 && a.size >= min(w.MinBytes, most)
	for _, slice := range a.slices {
		enough = enough || slice.Err != nil
	}
	return a, enough, nil
}

// refuseLost sets a *RangeError on the spans that begin past the end of Want.Epoch, in place of any
// other error but ErrNoPartition.
func (a *answer) refuseLost(w Want, epochs *epochRecord) {
	if w.Epoch == nil || *w.Epoch >= epochs.newest() {
		return
	}
	for i, s := range w.Spans {
		slice := &a.slices[i]
		_, end, known := epochs.end(s.Partition, *w.Epoch, math.MaxInt64)
		if known && s.From > end && !errors.Is(slice.Err, ErrNoPartition) {
			slice.Batches = nil
			slice.Err = &RangeError{Partition: s.Partition, Asked: s.From, First: min(slice.Bounds.First, end), Next: end}
		}
	}
}

// claim claims the answer's memory, shortening it to smallAnswer bytes if memory is short. If even
// smallAnswer bytes are not free, it returns the bytes to wait for.
func (a *answer) claim(w Want, most int, held int64) (lacks int64) {
	a.cut(w.Spans, most)
	if w.Claim.TryGrow(int64(a.size)-held, false) {
		return 0
	}
	a.cut(w.Spans, min(most, smallAnswer))
	a.shortened = true
	if w.Claim.TryGrow(int64(a.size)-held, true) {
		return 0
	}
	return int64(a.size)
}

// miss is a span that the tail could not answer.
type miss struct {
	index      int // the index of its span in Want.Spans
	span       Span
	unknown    bool        // this process does not know its bounds
	read       bool        // it is part of the store call
	prefetched *prefetched // what was prefetched for this span; nil: nothing
}

// collect reads from the tail, the prefetched spans and the store; the caller must cut the result
// to most. If lacks > 0 it did not call the store: the caller must claim so many bytes first. It
// fails only if the store failed and memory had nothing.
func (l *Log) collect(ctx context.Context, w Want, most int, held int64) (a answer, lacks int64, err error) {
	a.slices = make([]Slice, len(w.Spans))
	allowed := NewBudget(most)
	incarnation := l.tail.incarnationNumber() // taken before anything is read
	toRead := 0                               // bytes
	for i, s := range w.Spans {
		slice, at := l.fromTail(s)
		if at == inStore || at == unknown {
			d := miss{index: i, span: s, unknown: at == unknown}
			if err == nil && !allowed.Full() {
				d.prefetched, err = l.prefetch.take(ctx, s)
			}
			if d.prefetched != nil && d.prefetched.done != nil {
				slice = d.prefetched.slice
			} else {
				d.span.MaxBytes, d.read = allowed.Reserve(atMost(s, slice.Bounds)), true
				toRead += d.span.MaxBytes
			}
			a.misses = append(a.misses, d)
		}
		allowed.fit(s, slice.Batches)
		a.slices[i] = slice
	}
	if more := int64(toRead) - held; err == nil && !w.Claim.TryGrow(more, false) {
		return a, int64(min(toRead, smallAnswer)), nil
	}
	if err == nil {
		err = l.readMisses(ctx, &a, toRead, incarnation)
	}
	if err == nil {
		return a, 0, nil
	}
	a.failUnknown(err)
	if !slices.ContainsFunc(a.slices, func(s Slice) bool { return len(s.Batches) > 0 }) {
		return a, 0, err
	}
	return a, 0, nil
}

// atMost returns how many bytes are set aside for a span that is read from the store: not more than
// its partition has, so that one answer can have many small partitions. What was appended since the
// bounds were read comes with the next answer.
func atMost(s Span, known Bounds) int {
	if known.Next == 0 {
		return s.MaxBytes // the bounds are not known
	}
	return int(min(int64(s.MaxBytes), max(known.Bytes, 1)))
}

// fromTail answers a span from the tail if it can.
func (l *Log) fromTail(s Span) (Slice, source) {
	if l.catalog.Load().deleted(s.Partition) {
		return Slice{Bounds: Bounds{Partition: s.Partition}, Err: ErrNoPartition}, deleted
	}
	slice, at := l.tail.read(s)
	if at == trimmed {
		slice.Err = outside(s, slice.Bounds)
	}
	return slice, at
}

// readMisses reads the misses, and the bounds of spans whose bounds are unknown, in one store call.
// most is its limit in bytes. incarnation is the tail's number from before anything was read: the
// tail takes the batches only if it is still in that incarnation.
func (l *Log) readMisses(ctx context.Context, a *answer, most int, incarnation int64) error {
	var spans []Span
	var index []int
	for _, d := range a.misses {
		if d.read && (d.span.MaxBytes > 0 || d.unknown) {
			spans, index = append(spans, d.span), append(index, d.index)
		}
	}
	if len(spans) > 0 {
		read, err := l.read(ctx, spans, most)
		if err != nil {
			return err
		}
		for i, slice := range read {
			if s := spans[i]; slice.Err == nil && (s.From < slice.Bounds.First || s.From > slice.Bounds.Next) {
				slice.Err = outside(s, slice.Bounds)
			}
			a.slices[index[i]] = slice
		}
	}
	for _, d := range a.misses {
		slice := &a.slices[d.index]
		read := slice.Bounds
		if newer, known := l.tail.known(d.span.Partition); known && slice.Err == nil {
			slice.Bounds = newer // bounds must not be older than what another reader got
		}
		if len(slice.Batches) > 0 {
			l.tail.adopt(incarnation, read, slice.Batches)
		}
	}
	return nil
}

// read is one store call. It updates the tail with the bounds that the store returned.
func (l *Log) read(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error) {
	ps := make([]Partition, len(spans))
	for i, s := range spans {
		ps[i] = s.Partition
	}
	incarnation, known := l.tail.ends(ps)
	var slices []Slice
	err := l.called(ctx, "read", func() (err error) {
		slices, err = l.store.Read(ctx, spans, maxBytes)
		return err
	})
	if err != nil {
		if errors.Is(err, ErrRewound) {
			l.suspectRewind()
		}
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), err)
	}
	if err := l.gate.readable(ctx); err != nil {
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), err)
	}
	for i, s := range slices {
		if s.Err == nil && s.Bounds.Next < known[i] {
			return nil, fmt.Errorf("read %d partitions: %w", len(spans), l.suspect(ps[i], known[i], s.Bounds.Next))
		}
		if s.Err == nil {
			l.tail.updateBounds(incarnation, s.Bounds)
		}
	}
	l.examine(spans, slices)
	if incarnation != l.tail.incarnationNumber() {
		return nil, fmt.Errorf("read %d partitions: %w", len(spans), ErrRewound)
	}
	return slices, nil
}

// Decode decodes the batch's records, with their offsets in the log. A control batch yields none.
// It ends with the first error. What the caller may keep, and what it must not do in the loop, is
// the same as for batch.Records.
func (b Placed) Decode() iter.Seq2[batch.Record, error] {
	return func(yield func(batch.Record, error) bool) {
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			yield(batch.Record{}, err)
			return
		}
		if h.Attributes.Control() {
			return
		}
		for rec, err := range batch.Records(b.Bytes, batch.DefaultMaxDecompressed) {
			rec.Offset += int64(b.Base) - h.BaseOffset // the bytes are shared with other readers, and are not patched
			if !yield(rec, err) {
				return
			}
		}
	}
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
