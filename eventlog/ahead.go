package eventlog

import (
	"context"
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
	done  chan struct{} // nil without a trip; closed when slice is there
	slice Slice         // with an error if the trip failed
}

const (
	aheadBytes  = 32 << 20         // most that is read ahead and not yet asked for; readers beyond that wait for their trips
	aheadPlaces = 4096             // most places remembered
	aheadStale  = 10 * time.Second // a reader that did not come by then makes room
)

func newAhead(read func(context.Context, []Span, int) ([]Slice, error), known func(Partition) (Bounds, bool)) *ahead {
	return &ahead{read: read, known: known, next: make(map[place]*foresight)}
}

// answer reads spans: from what was read ahead, and the others in one trip. Then it sends the next trip on its way.
func (a *ahead) answer(ctx context.Context, spans []Span, maxBytes int) ([]Slice, error) {
	foreseen := a.takeAll(spans)
	var missing []Span
	for i, s := range spans {
		if f := foreseen[i]; f == nil || f.done == nil {
			missing = append(missing, s)
			continue
		}
		select {
		case <-foreseen[i].done:
			if foreseen[i].slice.Err != nil {
				missing, foreseen[i].done = append(missing, s), nil // what went wrong then may be right now
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var read []Slice
	var err error
	if len(missing) > 0 {
		if read, err = a.read(ctx, missing, maxBytes); err != nil {
			return nil, err
		}
	}
	got := make([]Slice, len(spans))
	for i, s := range spans {
		if f := foreseen[i]; f != nil && f.done != nil {
			got[i] = f.slice.upTo(s.MaxBytes)
		} else {
			got[i], read = read[0], read[1:]
		}
	}
	a.goOn(context.WithoutCancel(ctx), spans, got, foreseen)
	return got, nil
}

// goOn notes where the readers will go on, and reads there for those whose coming was foreseen.
func (a *ahead) goOn(ctx context.Context, spans []Span, got []Slice, foreseen []*foresight) {
	var trip []Span
	most := 0
	var waiting []*foresight
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range spans {
		n := len(got[i].Batches)
		if n == 0 {
			continue
		}
		last := got[i].Batches[n-1]
		s.From = last.Base + Offset(last.Records)
		if s.From >= got[i].Bounds.Next {
			continue // what follows comes through the tail
		}
		f := &foresight{noted: noted{place{s.Partition, s.From}, time.Now()}}
		if foreseen[i] != nil && a.makeRoom(s.MaxBytes) {
			f.held, f.done = s.MaxBytes, make(chan struct{})
			most += s.MaxBytes
			trip, waiting = append(trip, s), append(waiting, f)
		}
		a.note(f)
	}
	if len(trip) == 0 {
		return
	}
	a.trips.Go(func() {
		slices, err := a.read(ctx, trip, most)
		for i, f := range waiting {
			if err != nil {
				f.slice.Err = err
			} else {
				f.slice = slices[i]
			}
			close(f.done)
		}
	})
}

// takeAll returns what is known of the places where the spans begin, which then is forgotten.
func (a *ahead) takeAll(spans []Span) []*foresight {
	foreseen := make([]*foresight, len(spans))
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range spans {
		f := a.next[place{s.Partition, s.From}]
		if f == nil || s.MaxBytes <= 0 {
			continue
		}
		a.drop(f)
		if b, there := a.known(s.Partition); there && s.From >= b.First {
			foreseen[i] = f // else it was deleted or trimmed meanwhile, which the store will tell
		}
	}
	return foreseen
}

// forgetStale lets go of what was read for readers that did not come.
func (a *ahead) forgetStale() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dropStale()
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

// upTo returns the slice with at most maxBytes of batches, but at least one.
func (s Slice) upTo(maxBytes int) Slice {
	size := 0
	for i, b := range s.Batches {
		if size += len(b.Bytes); i > 0 && size > maxBytes {
			s.Batches = s.Batches[:i:i]
			break
		}
	}
	return s
}
