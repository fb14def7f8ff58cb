// Package storerow is what stores have in common that keep a row for each batch: the arithmetic of a partition's bounds, searching, trimming
// and replacing. The rows are found through an Index.
package storerow

import (
	"fmt"
	"sort"

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

// Index finds batches of partitions.
type Index interface {
	// Holding returns the batch that holds an offset: the last one that begins at or below it. No batch is an error.
	Holding(id eventlog.Partition, at eventlog.Offset) (Batch, error)
	// NotOlder returns where the first batch at or above an offset begins whose MaxTime is not older than a time.
	NotOlder(id eventlog.Partition, from eventlog.Offset, than eventlog.Timestamp) (at eventlog.Offset, found bool, err error)
	// Span returns what the batches that begin in [from, to) have together.
	Span(id eventlog.Partition, from, to eventlog.Offset) (Span, error)
	// Down calls yield with the batches that begin at or above an offset, newest first, until it returns false.
	Down(id eventlog.Partition, from eventlog.Offset, yield func(base eventlog.Offset, size int64) bool) error
}

// Seek is eventlog.Store's Seek, by binary search: some forty calls of Holding.
func Seek(in Index, id eventlog.Partition, p *Partition, goal eventlog.Goal) (eventlog.Offset, error) {
	if goal.Bytes > 0 {
		return seekBytes(in, id, p, goal.Bytes)
	}
	return seekTime(in, id, p, max(p.First, goal.From), goal.At)
}

// search returns the lowest offset in [from, next) whose batch is right, or next. Every batch after a right batch must be right, too.
func search(in Index, id eventlog.Partition, from, next eventlog.Offset, right func(Batch) bool) (eventlog.Offset, error) {
	var failed error
	n := sort.Search(int(max(0, next-from)), func(i int) bool {
		b, err := in.Holding(id, from+eventlog.Offset(i))
		if err != nil {
			failed = err
		}
		return err != nil || right(b)
	})
	return min(from+eventlog.Offset(n), next), failed
}

func seekTime(in Index, id eventlog.Partition, p *Partition, from eventlog.Offset, goal eventlog.Timestamp) (eventlog.Offset, error) {
	at, err := search(in, id, from, p.Next, func(b Batch) bool { return b.Newest >= goal })
	if err != nil || at >= p.Next {
		return at, err
	}
	// Newest is the maximum of all batches so far: perhaps only a batch below from, or one that was replaced, is new enough. So
	// compare the batches' own times.
	b, err := in.Holding(id, at)
	if err != nil || b.MaxTime >= goal {
		return at, err
	}
	at, found, err := in.NotOlder(id, at, goal)
	if err != nil || !found {
		return p.Next, err
	}
	return at, nil
}

func seekBytes(in Index, id eventlog.Partition, p *Partition, goal int64) (eventlog.Offset, error) {
	if p.Replaced > p.First {
		return seekReplaced(in, id, p, goal)
	}
	// The first batch that leaves too few bytes; the batch before it is the answer.
	at, err := search(in, id, p.First, p.Next, func(b Batch) bool { return p.NextByte-b.FirstByte < goal })
	if err != nil || at == p.First {
		return p.First, err
	}
	b, err := in.Holding(id, at-1)
	return max(p.First, b.Base), err
}

// seekReplaced is seekBytes for a partition in which batches were replaced: it adds the sizes up, newest first.
func seekReplaced(in Index, id eventlog.Partition, p *Partition, goal int64) (at eventlog.Offset, err error) {
	at = p.First
	first, err := in.Holding(id, p.First)
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

// Trim raises First to before, but not past Next. It reports whether that changed the partition.
func (p *Partition) Trim(in Index, id eventlog.Partition, before eventlog.Offset) (changed bool, err error) {
	first := max(p.First, min(before, p.Next))
	if first == p.First {
		return false, nil
	}
	if first == p.Next {
		p.First, p.FirstByte, p.Removed = first, p.NextByte, 0
		return true, nil
	}
	b, err := in.Holding(id, first)
	if err != nil {
		return false, err
	}
	excess, err := p.excess(in, id, b)
	if err != nil {
		return false, err
	}
	p.First, p.FirstByte, p.Removed = first, b.FirstByte, p.Removed-excess
	return true, nil
}

// excess returns what Removed counts between the batch that holds First and a later batch.
func (p *Partition) excess(in Index, id eventlog.Partition, later Batch) (int64, error) {
	if p.Replaced <= p.First {
		return 0, nil
	}
	first, err := in.Holding(id, p.First)
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

// Refuses returns why the partition's batches cannot be replaced; p is nil if there is no partition.
func (p *Partition) Refuses(in Index, r eventlog.Replace) (refusal, err error) {
	switch {
	case p == nil:
		return eventlog.ErrNoPartition, nil
	case r.From < p.First:
		return eventlog.ErrStale, nil
	}
	old, err := in.Span(r.Partition, r.From, r.To)
	if err == nil && (old.Batches == 0 || old.From != r.From || old.To != r.To) {
		refusal = eventlog.ErrStale
	}
	return refusal, err
}

// Replace returns the rows of the new batches of r, which take the place of old. Other batches keep their FirstByte, so Removed has the difference.
func (p *Partition) Replace(r eventlog.Replace, old Span) []Batch {
	rows := make([]Batch, len(r.Batches))
	at := r.From
	for i, b := range r.Batches {
		// Newest must not decrease along the partition: it stays that of the old batches, and may be too high.
		rows[i] = Batch{at, b.Records, b.MaxTime, old.Newest, old.FirstByte, len(b.Bytes)}
		p.Removed -= int64(len(b.Bytes))
		at += eventlog.Offset(b.Records)
	}
	p.Removed += old.Bytes
	p.Replaced = max(p.Replaced, r.To)
	return rows
}
