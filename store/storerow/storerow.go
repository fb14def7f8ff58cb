// Package storerow is what stores have in common that keep a row for each batch: the arithmetic of
// a partition's bounds, searching, trimming and replacing. The rows are found through an Index.
package storerow

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// Partition is the row of a partition.
type Partition struct {
	First, Next         eventlog.Offset
	FirstByte, NextByte int64              // where the batch that holds First begins, and where the next batch begins, counting all bytes ever appended
	Newest              eventlog.Timestamp // the highest MaxTime ever appended
	Replaced            eventlog.Offset    // the highest offset below which batches were replaced
	Removed             int64              // by how much NextByte - FirstByte exceeds the bytes of the batches
}

// Empty returns a partition that holds nothing yet.
func Empty() *Partition { return &Partition{Newest: eventlog.NoTimestamp} }

// Bounds returns the bounds of the partition.
func (p *Partition) Bounds(id eventlog.Partition) eventlog.Bounds {
	return eventlog.Bounds{Partition: id, First: p.First, Next: p.Next, Bytes: p.NextByte - p.FirstByte - p.Removed}
}

// Batch is the row of a batch, without its bytes.
type Batch struct {
	Base            eventlog.Offset
	Records         int32
	MaxTime, Newest eventlog.Timestamp // Newest: the highest MaxTime up to this batch; it never decreases along a partition
	FirstByte       int64              // bytes of the partition before this batch; it never decreases along a partition
	Size            int
}

// Append returns the row of a batch that is appended to the partition.
func (p *Partition) Append(b eventlog.Batch) Batch {
	p.Newest = max(p.Newest, b.MaxTime)
	row := Batch{p.Next, b.Records, b.MaxTime, p.Newest, p.NextByte, len(b.Bytes)}
	p.Next += eventlog.Offset(b.Records)
	p.NextByte += int64(len(b.Bytes))
	return row
}

// Span is what the batches that begin in a span of offsets have together.
type Span struct {
	Batches          int64
	From, To         eventlog.Offset // where the first begins, and the last ends
	Bytes, FirstByte int64           // FirstByte: of the first
	Newest           eventlog.Timestamp
}

// Place is an offset in a partition, and the time for NotOlder.
type Place struct {
	Partition eventlog.Partition
	At        eventlog.Offset
	NotOlder  eventlog.Timestamp
}

// None is no offset.
const None eventlog.Offset = -1

// Index finds batches of partitions.
type Index interface {
	// Holding returns, for each place, the batch that holds it: the last one that begins at or
	// below it. If there is none, the store is damaged, and its Base is None.
	Holding(places []Place) ([]Batch, error)
	// NotOlder returns, for each place, where the first batch at or above it begins whose MaxTime
	// is not older than the place's time; None: there is no such batch.
	NotOlder(places []Place) ([]eventlog.Offset, error)
	// Span returns what the batches that begin in [from, to) have together.
	Span(id eventlog.Partition, from, to eventlog.Offset) (Span, error)
	// Down calls yield with the batches that begin at or above an offset, newest first, until it
	// returns false.
	Down(id eventlog.Partition, from eventlog.Offset, yield func(base eventlog.Offset, size int64) bool) error
}

// holding returns the batch that holds one offset; a *lacksError if there is none.
func holding(in Index, id eventlog.Partition, at eventlog.Offset) (b Batch, err error) {
	found, err := in.Holding([]Place{{Partition: id, At: at}})
	if err != nil {
		return b, err
	}
	return found[0], lacks(found[0], id, at)
}

// lacksError: no batch has an offset that the partition has. It concerns this partition alone.
type lacksError struct {
	id eventlog.Partition
	at eventlog.Offset
}

func (e *lacksError) Error() string {
	return fmt.Sprintf("no batch of partition %d has the offset %d: the store is damaged", e.id, e.at)
}

// lacks returns the error for a batch that Holding did not find.
func lacks(b Batch, id eventlog.Partition, at eventlog.Offset) error {
	if b.Base == None {
		return &lacksError{id, at}
	}
	return nil
}

// ofOne divides an error of one partition's work: what concerns only that partition, and what ends
// all.
func ofOne(err error) (own, all error) {
	if _, is := errors.AsType[*lacksError](err); is {
		return err, nil
	}
	return nil, err
}

// Seek is eventlog.Store's Seek, by binary search: some forty calls of Holding for all goals by
// time, and as many for each goal by bytes. A partition that is not among partitions does not
// exist.
func Seek(in Index, partitions map[eventlog.Partition]*Partition, goals []eventlog.Goal) ([]eventlog.Found, error) {
	found := make([]eventlog.Found, len(goals))
	var times []*search
	for i, goal := range goals {
		p, answer := partitions[goal.Partition], &found[i]
		switch {
		case p == nil:
			answer.Err = eventlog.ErrNoPartition
		case goal.Bytes > 0:
			at, err := seekBytes(in, goal.Partition, p, goal.Bytes)
			if answer.At = at; err != nil {
				if answer.Err, err = ofOne(err); err != nil {
					return nil, fmt.Errorf("partition %d: %w", goal.Partition, err)
				}
			}
		case p.Newest < goal.At:
			answer.At = p.Next
		default:
			from := min(max(p.First, goal.From), p.Next)
			times = append(times, &search{id: goal.Partition, low: from, high: p.Next, next: p.Next, goal: goal.At, into: answer,
				right: func(b Batch) bool { return b.Newest >= goal.At }})
		}
	}
	return found, seekTimes(in, times)
}

// search looks for the lowest offset in [low, high) whose batch is right, or high. Every batch
// after a right batch must be right, too.
type search struct {
	id        eventlog.Partition
	low, high eventlog.Offset
	right     func(Batch) bool

	next eventlog.Offset    // the end of the partition
	goal eventlog.Timestamp // for seekTimes
	into *eventlog.Found    // where seekTimes puts the answer
	err  error              // of this search alone: it has no answer
}

// run makes searches in step with each other, with a call of Holding for each step. Then low is the
// answer of each that has no error.
func run(in Index, searches []*search) error {
	for {
		var open []*search
		var places []Place
		for _, s := range searches {
			if s.low < s.high && s.err == nil {
				open = append(open, s)
				places = append(places, Place{Partition: s.id, At: s.low + (s.high-s.low)/2})
			}
		}
		if len(open) == 0 {
			return nil
		}
		batches, err := in.Holding(places)
		if err != nil {
			return err
		}
		for i, s := range open {
			if s.err = lacks(batches[i], s.id, places[i].At); s.err != nil {
				continue
			}
			if s.right(batches[i]) {
				s.high = places[i].At
			} else {
				s.low = places[i].At + 1
			}
		}
	}
}

func seekTimes(in Index, searches []*search) error {
	if err := run(in, searches); err != nil {
		return err
	}
	var open []*search
	var places []Place
	for _, s := range searches {
		if s.into.At, s.into.Err = s.low, s.err; s.low < s.next && s.err == nil {
			open = append(open, s)
			places = append(places, Place{Partition: s.id, At: s.low, NotOlder: s.goal})
		}
	}
	if len(open) == 0 {
		return nil
	}
	batches, err := in.Holding(places)
	if err != nil {
		return err
	}
	// Newest is the maximum of all batches so far: perhaps only a batch below the search, or one
	// that was replaced, is new enough. So compare the batches' own times.
	var later []*search
	places = places[:0:0]
	for i, s := range open {
		if s.into.Err = lacks(batches[i], s.id, s.low); s.into.Err == nil && batches[i].MaxTime < s.goal {
			later = append(later, s)
			places = append(places, Place{Partition: s.id, At: s.low, NotOlder: s.goal})
		}
	}
	if len(later) == 0 {
		return nil
	}
	found, err := in.NotOlder(places)
	if err != nil {
		return err
	}
	for i, s := range later {
		if s.into.At = found[i]; found[i] == None {
			s.into.At = s.next
		}
	}
	return nil
}

func seekBytes(in Index, id eventlog.Partition, p *Partition, goal int64) (eventlog.Offset, error) {
	if p.Replaced > p.First {
		return seekReplaced(in, id, p, goal)
	}
	// The first batch that leaves too few bytes; the batch before it is the answer.
	s := search{id: id, low: p.First, high: p.Next, right: func(b Batch) bool { return p.NextByte-b.FirstByte < goal }}
	err := run(in, []*search{&s})
	if err == nil {
		err = s.err
	}
	if err != nil || s.low == p.First {
		return p.First, err
	}
	b, err := holding(in, id, s.low-1)
	return max(p.First, b.Base), err
}

// seekReplaced is seekBytes for a partition in which batches were replaced: it adds the sizes up,
// newest first.
func seekReplaced(in Index, id eventlog.Partition, p *Partition, goal int64) (at eventlog.Offset, err error) {
	at = p.First
	first, err := holding(in, id, p.First)
	if err != nil {
		return at, err
	}
	var after int64
	err = in.Down(id, first.Base, func(base eventlog.Offset, size int64) bool {
		if after += size; after < goal {
			return true
		}
		at = max(p.First, base)
		return false
	})
	return at, err
}

// Trim raises the First of each trim's partition to Before, but not past Next. It returns the
// partitions that changed, in order, and the error of each trim. A partition that is not among
// partitions does not exist. It calls Holding once. For each partition in which batches were
// replaced it calls Holding once more, and Span once.
func Trim(in Index, partitions map[eventlog.Partition]*Partition, trims []eventlog.Trim) (changed []eventlog.Partition, errs []error, err error) {
	below := make(map[eventlog.Partition]eventlog.Offset, len(trims))
	for _, t := range trims {
		if p := partitions[t.Partition]; p != nil {
			below[t.Partition] = max(p.First, below[t.Partition], min(t.Before, p.Next))
		}
	}
	var places []Place
	for _, id := range slices.Sorted(maps.Keys(below)) {
		if at := below[id]; at > partitions[id].First {
			changed = append(changed, id)
			if at < partitions[id].Next {
				places = append(places, Place{Partition: id, At: at})
			}
		}
	}
	first := make(map[eventlog.Partition]Batch, len(places)) // the batch that holds the new First
	if len(places) > 0 {
		batches, err := in.Holding(places)
		if err != nil {
			return nil, nil, err
		}
		for i, place := range places {
			first[place.Partition] = batches[i]
		}
	}
	damaged := make(map[eventlog.Partition]error)
	for _, id := range changed {
		own, err := ofOne(partitions[id].trim(in, id, below[id], first[id]))
		if err != nil {
			return nil, nil, err
		}
		if own != nil {
			damaged[id] = own
		}
	}
	changed = slices.DeleteFunc(changed, func(id eventlog.Partition) bool { return damaged[id] != nil })
	errs = make([]error, len(trims))
	for i, t := range trims {
		errs[i] = damaged[t.Partition]
	}
	return changed, errs, nil
}

// trim raises First to the offset given. The parameter first is the batch that holds this offset,
// unless the offset is Next.
func (p *Partition) trim(in Index, id eventlog.Partition, to eventlog.Offset, first Batch) error {
	if to == p.Next {
		p.First, p.FirstByte, p.Removed = to, p.NextByte, 0
		return nil
	}
	if err := lacks(first, id, to); err != nil {
		return err
	}
	excess, err := p.excess(in, id, first)
	if err == nil {
		p.First, p.FirstByte, p.Removed = to, first.FirstByte, p.Removed-excess
	}
	return err
}

// excess returns what Removed counts between the batch that holds First and a later batch.
func (p *Partition) excess(in Index, id eventlog.Partition, later Batch) (int64, error) {
	if p.Replaced <= p.First {
		return 0, nil
	}
	first, err := holding(in, id, p.First)
	if err != nil {
		return 0, err
	}
	between, err := in.Span(id, first.Base, later.Base)
	return later.FirstByte - first.FirstByte - between.Bytes, err
}

// CheckReplaces returns an error unless each Replace of a flush is in itself correct.
func CheckReplaces(flush []eventlog.Entry) error {
	for _, e := range flush {
		for _, r := range e.Replaces {
			if err := r.Check(); err != nil {
				return fmt.Errorf("commit: %w", err)
			}
		}
	}
	return nil
}

// Holds reports whether the partition's batches hold exactly the offsets of a replacement, and were
// not trimmed.
func (p *Partition) Holds(in Index, r eventlog.Replace) (bool, error) {
	if r.From < p.First {
		return false, nil
	}
	old, err := in.Span(r.Partition, r.From, r.To)
	return old.Batches > 0 && old.From == r.From && old.To == r.To, err
}

// Replace returns the rows of the new batches of r, which take the place of old. Other batches keep
// their FirstByte, so Removed has the difference.
func (p *Partition) Replace(r eventlog.Replace, old Span) []Batch {
	rows := make([]Batch, len(r.Batches))
	at := r.From
	for i, b := range r.Batches {
		// Newest must not decrease along the partition: it stays that of the old batches, and may
		// be too high.
		rows[i] = Batch{at, b.Records, b.MaxTime, old.Newest, old.FirstByte, len(b.Bytes)}
		p.Removed -= int64(len(b.Bytes))
		at += eventlog.Offset(b.Records)
	}
	p.Removed += old.Bytes
	p.Replaced = max(p.Replaced, r.To)
	return rows
}
