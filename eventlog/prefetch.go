package eventlog

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// prefetch reads the next span of a partition while its reader handles this one. It does so only
// for readers of older records, which continue where an answer from the store ended: from a
// reader's second fetch on, the next store call is always in flight.
//
//	reader   ask ──answer── work ──────── ask ──answer── work ──────── ask …
//	store         read           prefetch ────┘     prefetch ────┘
type prefetch struct {
	read        func(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error)
	known       func(Partition) (Bounds, bool)
	incarnation func() int64   // the tail's number for the incarnation: spans read in another one are not returned
	calls       sync.WaitGroup // store calls in flight

	mu    sync.Mutex // guards what follows
	next  map[partitionOffset]*prefetched
	order []noted // the oldest first; some elements are no longer in next
	held  int     // bytes of the batches in next; for a store call in flight, the limit of its span
}

// partitionOffset is an offset of a partition.
type partitionOffset struct {
	partition Partition
	offset    Offset
}

// noted is where a reader is expected to continue, and since when it is expected.
type noted struct {
	partitionOffset
	at time.Time
}

// prefetched is an offset where a reader is expected, and the slice that is read for it.
type prefetched struct {
	noted
	held        int           // its part of prefetch.held
	incarnation int64         // number of the incarnation when the store call began
	done        chan struct{} // nil: nothing is read for it; closed when slice is set
	slice       Slice         // with Err if the store call failed
}

const (
	prefetchBytes   = 32 << 20         // most bytes prefetched and not yet fetched; beyond that nothing is prefetched
	prefetchOffsets = 4096             // most offsets where readers are expected
	prefetchStale   = 10 * time.Second // a reader that did not fetch by then is no longer expected
)

func newPrefetch(read func(context.Context, []Span, int) ([]Slice, error), known func(Partition) (Bounds, bool), incarnation func() int64) *prefetch {
	return &prefetch{read: read, known: known, incarnation: incarnation, next: make(map[partitionOffset]*prefetched)}
}

// take removes and returns the entry for the offset where a span begins; nil: there is none. It
// waits for a store call in flight. In the result, done is nil if nothing that can be used was
// read.
func (p *prefetch) take(ctx context.Context, s Span) (*prefetched, error) {
	f := p.remove(s)
	if f == nil || f.done == nil {
		return f, nil
	}
	select {
	case <-f.done:
		if f.slice.Err != nil || len(f.slice.Batches) == 0 || f.incarnation != p.incarnation() {
			f.done = nil // read it anew: the error may be over
		}
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *prefetch) remove(s Span) *prefetched {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.next[partitionOffset{s.Partition, s.From}]
	if f == nil || s.MaxBytes <= 0 {
		return nil
	}
	p.drop(f)
	if b, there := p.known(s.Partition); !there || s.From < b.First {
		return nil // the partition was deleted or trimmed meanwhile: the store reports that
	}
	return f
}

// prefetchNext notes where readers are expected to continue, and prefetches for the readers that
// fetched where they were expected.
func (p *prefetch) prefetchNext(ctx context.Context, misses []miss, got []Slice) {
	var spans []Span
	var waiting []*prefetched
	most := 0
	incarnation := p.incarnation()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range misses {
		s, slice := d.span, got[d.index]
		n := len(slice.Batches)
		if n == 0 {
			continue
		}
		last := slice.Batches[n-1]
		s.From = last.End()
		if s.From >= slice.Bounds.Next {
			continue // what follows comes through the tail
		}
		f := &prefetched{noted: noted{partitionOffset{s.Partition, s.From}, time.Now()}}
		if d.prefetched != nil && p.hasRoom(s.MaxBytes) {
			f.held, f.incarnation, f.done = s.MaxBytes, incarnation, make(chan struct{})
			spans, waiting = append(spans, s), append(waiting, f)
			most += s.MaxBytes
		}
		p.note(f)
	}
	if len(spans) == 0 {
		return
	}
	p.calls.Go(func() { p.fetch(ctx, spans, most, waiting) })
}

// fetch reads spans for the expected readers. Each span is charged with the true size of its
// batches: the first may be larger than the span's limit.
func (p *prefetch) fetch(ctx context.Context, spans []Span, most int, waiting []*prefetched) {
	slices, err := p.tryRead(ctx, spans, most)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range waiting {
		if err != nil {
			f.slice.Err = err
		} else {
			f.slice = slices[i]
		}
		if p.next[f.partitionOffset] == f { // it was neither taken nor dropped meanwhile
			size := bytesIn(f.slice.Batches)
			if p.held += size - f.held; p.held > prefetchBytes {
				p.held, size, f.slice = p.held-size, 0, Slice{}
			}
			f.held = size
		}
		close(f.done)
	}
}

// tryRead is read, with a panic made an error: no request waits for this call, so no door would
// recover.
func (p *prefetch) tryRead(ctx context.Context, spans []Span, most int) (slices []Slice, err error) {
	defer func() {
		if v := recover(); v != nil {
			slices, err = nil, fmt.Errorf("prefetch: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return p.read(ctx, spans, most)
}

// forgetStale drops what was prefetched for readers that did not come.
func (p *prefetch) forgetStale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropStale()
}

// clear drops everything.
func (p *prefetch) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.order, p.held = make(map[partitionOffset]*prefetched), nil, 0
}

// The functions below need p.mu held.

func (p *prefetch) note(f *prefetched) {
	if before := p.next[f.partitionOffset]; before != nil {
		p.drop(before)
	}
	p.next[f.partitionOffset] = f
	p.order = append(p.order, f.noted)
	p.held += f.held
	for len(p.order) > prefetchOffsets {
		p.dropOldest()
	}
}

// hasRoom reports whether so many bytes more may be prefetched. It drops stale entries first, if
// need be.
func (p *prefetch) hasRoom(bytes int) bool {
	if p.held+bytes > prefetchBytes {
		p.dropStale()
	}
	return p.held+bytes <= prefetchBytes
}

func (p *prefetch) dropStale() {
	for len(p.order) > 0 && time.Since(p.order[0].at) > prefetchStale {
		p.dropOldest()
	}
}

func (p *prefetch) dropOldest() {
	if f := p.next[p.order[0].partitionOffset]; f != nil && f.noted == p.order[0] {
		p.drop(f)
	}
	p.order = p.order[1:]
}

func (p *prefetch) drop(f *prefetched) {
	delete(p.next, f.partitionOffset)
	p.held -= f.held
}
