package eventlog

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// prefetch reads the next span of a partition while its reader handles this one. It does so for readers of history: those who ask for what
// follows an answer from the store. From a reader's second question on, the next trip is always under way.
//
//	reader   ask ──answer── work ──────── ask ──answer── work ──────── ask …
//	store         read           prefetch ────┘     prefetch ────┘
type prefetch struct {
	read  func(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error)
	known func(Partition) (Bounds, bool)
	age   func() int64 // of the tail: what was read at another is not answered
	trips sync.WaitGroup

	mu    sync.Mutex // guards what follows
	next  map[place]*prefetched
	order []noted // the oldest first; some are no longer in next
	held  int     // bytes that the trips of next may bring
}

// place is where a reader will go on.
type place struct {
	partition Partition
	from      Offset
}

// noted says since when a place is in next.
type noted struct {
	place
	at time.Time
}

// prefetched is what is known of a place: that a reader may come there, and what a trip brings for it.
type prefetched struct {
	noted
	held  int           // of prefetch.held
	life  int64         // the age when the trip began
	done  chan struct{} // nil without a trip; closed when slice is there
	slice Slice         // with an error if the trip failed
}

const (
	prefetchBytes  = 32 << 20         // most that is prefetched and not yet asked for; readers beyond that wait for their trips
	prefetchPlaces = 4096             // most places remembered
	prefetchStale  = 10 * time.Second // a reader that did not come by then makes room
)

func newPrefetch(read func(context.Context, []Span, int) ([]Slice, error), known func(Partition) (Bounds, bool), age func() int64) *prefetch {
	return &prefetch{read: read, known: known, age: age, next: make(map[place]*prefetched)}
}

// take returns what is known of the place where a span begins, and forgets it; nil where nothing is. It waits for a trip that is under way.
// done is nil where no trip brought anything.
func (p *prefetch) take(ctx context.Context, s Span) (*prefetched, error) {
	f := p.know(s)
	if f == nil || f.done == nil {
		return f, nil
	}
	select {
	case <-f.done:
		if f.slice.Err != nil || len(f.slice.Batches) == 0 || f.life != p.age() {
			f.done = nil // what went wrong then may be right now
		}
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *prefetch) know(s Span) *prefetched {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.next[place{s.Partition, s.From}]
	if f == nil || s.MaxBytes <= 0 {
		return nil
	}
	p.drop(f)
	if b, there := p.known(s.Partition); !there || s.From < b.First {
		return nil // it was deleted or trimmed meanwhile, which the store will tell
	}
	return f
}

// goOn notes where the readers will go on, and prefetches for those who were expected.
func (p *prefetch) goOn(ctx context.Context, far []distant, got []Slice) {
	var trip []Span
	var waiting []*prefetched
	most := 0
	life := p.age()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range far {
		s, slice := d.span, got[d.index]
		n := len(slice.Batches)
		if n == 0 {
			continue
		}
		last := slice.Batches[n-1]
		s.From = last.Base + Offset(last.Records)
		if s.From >= slice.Bounds.Next {
			continue // what follows comes through the tail
		}
		f := &prefetched{noted: noted{place{s.Partition, s.From}, time.Now()}}
		if d.expected != nil && p.makeRoom(s.MaxBytes) {
			f.held, f.life, f.done = s.MaxBytes, life, make(chan struct{})
			trip, waiting = append(trip, s), append(waiting, f)
			most += s.MaxBytes
		}
		p.note(f)
	}
	if len(trip) == 0 {
		return
	}
	p.trips.Go(func() { p.fetch(ctx, trip, most, waiting) })
}

// fetch makes a trip for those who wait. What comes counts with its true size: a batch may be larger than what was asked for.
func (p *prefetch) fetch(ctx context.Context, trip []Span, most int, waiting []*prefetched) {
	slices, err := p.tryRead(ctx, trip, most)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, f := range waiting {
		if err != nil {
			f.slice.Err = err
		} else {
			f.slice = slices[i]
		}
		if p.next[f.place] == f { // else it was taken already, or gave way
			size := bytesIn(f.slice.Batches)
			if p.held += size - f.held; p.held > prefetchBytes {
				p.held, size, f.slice = p.held-size, 0, Slice{}
			}
			f.held = size
		}
		close(f.done)
	}
}

// tryRead is read for a trip that no request waits for, and so no door would catch its panic.
func (p *prefetch) tryRead(ctx context.Context, trip []Span, most int) (slices []Slice, err error) {
	defer func() {
		if v := recover(); v != nil {
			slices, err = nil, fmt.Errorf("prefetch: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return p.read(ctx, trip, most)
}

// forgetStale lets go of what was read for readers that did not come.
func (p *prefetch) forgetStale() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropStale()
}

// clear lets go of all.
func (p *prefetch) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.order, p.held = make(map[place]*prefetched), nil, 0
}

// The rest needs p.mu held.

func (p *prefetch) note(f *prefetched) {
	if before := p.next[f.place]; before != nil {
		p.drop(before)
	}
	p.next[f.place] = f
	p.order = append(p.order, f.noted)
	p.held += f.held
	for len(p.order) > prefetchPlaces {
		p.dropOldest()
	}
}

// makeRoom tells whether so many bytes more may be read ahead. Readers that did not come give way.
func (p *prefetch) makeRoom(bytes int) bool {
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
	if f := p.next[p.order[0].place]; f != nil && f.noted == p.order[0] {
		p.drop(f)
	}
	p.order = p.order[1:]
}

func (p *prefetch) drop(f *prefetched) {
	delete(p.next, f.place)
	p.held -= f.held
}
