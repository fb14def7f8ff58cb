package eventlog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/weir-log/weir/eventlog/batch"
)

// DamagedError reports a batch that the store does not return as it was written: its bytes changed,
// or it is missing or incomplete. Other batches and other partitions are not affected.
type DamagedError struct {
	Topic     string    // "" if it is not known
	Number    int       // the partition's number in the topic
	Partition Partition // the partition's number in the store
	From      Offset    // the first offset that cannot be read
	Next      Offset    // where reading can continue; 0: unknown
	Raw       []byte    // the batch's bytes, as far as they are there
	Err       error     // what is wrong
}

func (e *DamagedError) Error() string {
	where, on := fmt.Sprintf("partition %d of the store", e.Partition), "continue at a higher offset"
	if e.Topic != "" {
		where = fmt.Sprintf("topic %q, partition %d (%d of the store)", e.Topic, e.Number, e.Partition)
	}
	if e.Next > 0 {
		on = fmt.Sprintf("continue at offset %d", e.Next)
	}
	return fmt.Sprintf("%s: the batch at offset %d is damaged in the store: %v. Run weir doctor and restore a backup. To read on without these events, %s",
		where, e.From, e.Err, on)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// examine checks the batches that the store returned for spans. Batches of the tail, and prefetched
// ones, were checked before. It cuts each slice at the first damaged batch and, if that is the
// first of the slice, sets Err.
func (l *Log) examine(spans []Span, slices []Slice) {
	first := true // no earlier span got a batch, so the next span that asks for one must get one
	for i := range slices {
		s, slice := spans[i], &slices[i]
		wants := s.MaxBytes > 0 && s.From >= slice.Bounds.First && s.From < slice.Bounds.Next
		n := len(slice.Batches)
		var damaged *DamagedError
		switch {
		case slice.Err != nil:
			damaged, _ = errors.AsType[*DamagedError](slice.Err) // the store found it
		case n == 0 && wants && first:
			damaged = &DamagedError{Partition: s.Partition, From: s.From, Err: fmt.Errorf("it is missing, though the partition holds the offsets [%d, %d)", slice.Bounds.First, slice.Bounds.Next)}
			slice.Err = damaged
		case n > 0:
			damaged = cutAtDamage(s.From, slice)
		}
		if damaged != nil {
			l.report(damaged)
		}
		first = first && n == 0 && damaged == nil
	}
}

// cutAtDamage cuts a slice at its first damaged batch, and returns what is wrong with that batch;
// nil: none is damaged. The slice must begin with the batch that holds the offset at.
func cutAtDamage(at Offset, slice *Slice) *DamagedError {
	for i, b := range slice.Batches {
		if damaged := CheckPlaced(at, b, i == 0); damaged != nil {
			slice.Batches = slice.Batches[:i:i]
			if i == 0 {
				slice.Err = damaged
			}
			return damaged
		}
		at = b.End()
	}
	return nil
}

// CheckPlaced compares a batch with what the store says of it and with its own checksum; nil: they
// agree. The batch must begin at the offset at; with inside it may begin below at, but must hold
// at.
func CheckPlaced(at Offset, b Placed, inside bool) *DamagedError {
	end := b.End()
	switch {
	case b.Base > at: // the batches between are missing
		return &DamagedError{Partition: b.Partition, From: at, Next: b.Base, Err: fmt.Errorf("it is missing: the next batch begins at %d", b.Base)}
	case b.Base < at && !inside, end <= at:
		return &DamagedError{Partition: b.Partition, From: at, Err: fmt.Errorf("it is missing: the store returned the batch with the offsets [%d, %d) instead", b.Base, end)}
	}
	h, err := batch.CheckStored(b.Bytes)
	if err == nil && h.Offsets() != b.Records {
		err = fmt.Errorf("%w: its header says it takes %d offsets, but the store says %d", batch.ErrCorrupt, h.Offsets(), b.Records)
	}
	if err != nil {
		return &DamagedError{Partition: b.Partition, From: max(b.Base, at), Next: end, Raw: b.Bytes, Err: err}
	}
	return nil
}

// report adds the topic to an error and logs it, once for each batch.
func (l *Log) report(e *DamagedError) {
	e.Topic, e.Number = l.nameOf(e.Partition)
	l.cfg.Observer.StoreFailed("read", e)
	if l.damage.isNew(e) {
		l.cfg.Logger.Error("events are damaged in the store", "topic", e.Topic, "partition", e.Number, "offset", e.From, "err", e)
	}
}

// nameOf returns the topic of a partition, for messages.
func (l *Log) nameOf(p Partition) (topic string, number int) {
	for _, t := range l.Topics() {
		for n, id := range t.Partitions {
			if id == p {
				return t.Name, n
			}
		}
	}
	return "", 0
}

// reportedMax is how many damaged batches are remembered as reported. Beyond it all are forgotten,
// and reported again.
const reportedMax = 1000

// reportedDamage remembers which damaged batches were logged: their readers fetch again and again.
type reportedDamage struct {
	mu   sync.Mutex // guards seen
	seen map[partitionOffset]bool
}

func (t *reportedDamage) isNew(e *DamagedError) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := partitionOffset{e.Partition, max(e.From, e.Next-1)} // the same key for a batch, wherever the read began
	if t.seen == nil || len(t.seen) >= reportedMax {
		t.seen = make(map[partitionOffset]bool)
	}
	before := t.seen[at]
	t.seen[at] = true
	return !before
}
