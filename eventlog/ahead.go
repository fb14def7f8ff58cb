package eventlog

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ahead reads for readers of history, while they are busy with one answer, what they will ask for next. A reader is one of
// history when it asks for what follows an answer from the store; from its second question on, the next trip is always under way.
//
//	reader   ask ──answer── work ──────── ask ──answer── work ──────── ask …
//	store         read           read ahead ──┘     read ahead ──┘
type ahead struct {
	read  func(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error)
	known func(Partition) (Bounds, bool)
	age   func() int64 // of the tail: what was read at another is not answered
	trips sync.WaitGroup

	mu    sync.Mutex // guards what follows
	next  map[place]*foresight
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

// foresight is what is known of a place: that a reader may come there, and what a trip brings for it.
type foresight struct {
	noted
	held  int           // of ahead.held
	life  int64         // the age when the trip began
	done  chan struct{} // nil without a trip; closed when slice is there
	slice Slice         // with an error if the trip failed
}

const (
	aheadBytes  = 32 << 20         // most that is read ahead and not yet asked for; readers beyond that wait for their trips
	aheadPlaces = 4096             // most places remembered
	aheadStale  = 10 * time.Second // a reader that did not come by then makes room
)

func newAhead(read func(context.Context, []Span, int) ([]Slice, error), known func(Partition) (Bounds, bool), age func() int64) *ahead {
	return &ahead{read: read, known: known, age: age, next: make(map[place]*foresight)}
}

// take returns what is known of the place where a span begins, and forgets it; nil where nothing is. It waits for a trip that is under way.
// done is nil where no trip brought anything.
func (a *ahead) take(ctx context.Context, s Span) (*foresight, error) {
	f := a.know(s)
	if f == nil || f.done == nil {
		return f, nil
	}
	select {
	case <-f.done:
		if f.slice.Err != nil || len(f.slice.Batches) == 0 || f.life != a.age() {
			f.done = nil // what went wrong then may be right now
		}
		return f, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *ahead) know(s Span) *foresight {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.next[place{s.Partition, s.From}]
	if f == nil || s.MaxBytes <= 0 {
		return nil
	}
	a.drop(f)
	if b, there := a.known(s.Partition); !there || s.From < b.First {
		return nil // it was deleted or trimmed meanwhile, which the store will tell
	}
	return f
}

// goOn notes where the readers will go on, and reads there for those whose coming was foreseen.
func (a *ahead) goOn(ctx context.Context, far []distant, got []Slice) {
	var trip []Span
	var waiting []*foresight
	most := 0
	life := a.age()
	a.mu.Lock()
	defer a.mu.Unlock()
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
		f := &foresight{noted: noted{place{s.Partition, s.From}, time.Now()}}
		if d.foreseen != nil && a.makeRoom(s.MaxBytes) {
			f.held, f.life, f.done = s.MaxBytes, life, make(chan struct{})
			trip, waiting = append(trip, s), append(waiting, f)
			most += s.MaxBytes
		}
		a.note(f)
	}
	if len(trip) == 0 {
		return
	}
	a.trips.Go(func() { a.fetch(ctx, trip, most, waiting) })
}

// fetch makes a trip for those who wait. What comes counts with its true size: a batch may be larger than what was asked for.
func (a *ahead) fetch(ctx context.Context, trip []Span, most int, waiting []*foresight) {
	slices, err := a.tryRead(ctx, trip, most)
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, f := range waiting {
		if err != nil {
			f.slice.Err = err
		} else {
			f.slice = slices[i]
		}
		if a.next[f.place] == f { // else it was taken already, or gave way
			size := bytesIn(f.slice.Batches)
			if a.held += size - f.held; a.held > aheadBytes {
				a.held, size, f.slice = a.held-size, 0, Slice{}
			}
			f.held = size
		}
		close(f.done)
	}
}

// tryRead is read for a trip that no request waits for, and so no door would catch its panic.
func (a *ahead) tryRead(ctx context.Context, trip []Span, most int) (slices []Slice, err error) {
	defer func() {
		if v := recover(); v != nil {
			slices, err = nil, fmt.Errorf("read ahead: panic: %v\n%s", v, debug.Stack())
		}
	}()
	return a.read(ctx, trip, most)
}

// forgetStale lets go of what was read for readers that did not come.
func (a *ahead) forgetStale() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropStale()
}

// clear lets go of all.
func (a *ahead) clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next, a.order, a.held = make(map[place]*foresight), nil, 0
}

// The rest needs a.mu held.

func (a *ahead) note(f *foresight) {
	if before := a.next[f.place]; before != nil {
		a.drop(before)
	}
	a.next[f.place] = f
	a.order = append(a.order, f.noted)
	a.held += f.held
	for len(a.order) > aheadPlaces {
		a.dropOldest()
	}
}

// makeRoom tells whether so many bytes more may be read ahead. Readers that did not come give way.
func (a *ahead) makeRoom(bytes int) bool {
	if a.held+bytes > aheadBytes {
		a.dropStale()
	}
	return a.held+bytes <= aheadBytes
}

func (a *ahead) dropStale() {
	for len(a.order) > 0 && time.Since(a.order[0].at) > aheadStale {
		a.dropOldest()
	}
}

func (a *ahead) dropOldest() {
	if f := a.next[a.order[0].place]; f != nil && f.noted == a.order[0] {
		a.drop(f)
	}
	a.order = a.order[1:]
}

func (a *ahead) drop(f *foresight) {
	delete(a.next, f.place)
	a.held -= f.held
}
