package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes is about how much of a partition is read at a time. A batch that is larger comes as
	// a whole.
	readBytes = 1 << 20
	// decodedBytes ends a read after the batch that exceeds it: decompressed batches may have a
	// hundred times as many bytes as were read.
	decodedBytes = 16 << 20
	// readWait is how long one wait for events lasts. When it ends, the next wait begins.
	readWait = time.Minute
)

// reader reads the events of one partition, in order.
type reader struct {
	log   *eventlog.Log
	id    eventlog.Partition
	next  eventlog.Offset // offset of the event that follows the queue
	epoch int32           // the leader epoch in which the events before next were read
	queue []Event         // read, and not yet taken
}

// brokenError is a range of events that cannot be read: the batch is damaged in the store, or was
// compressed wrongly by its producer.
type brokenError struct {
	from, next eventlog.Offset
	raw        []byte
	err        error
}

func (e *brokenError) Error() string { return "the batch cannot be read: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// event makes one event that stands for the whole range.
func (e *brokenError) event() Event {
	return Event{Record: batch.Record{Offset: int64(e.from), Timestamp: batch.NoTimestamp, Value: e.raw}, Attempt: 1}
}

// seek moves the reader to an offset that was found in a leader epoch.
func (r *reader) seek(to eventlog.Offset, epoch int32) { r.next, r.epoch, r.queue = to, epoch, nil }

// take drops the first n events of the queue. From now on they belong to the caller.
func (r *reader) take(n int) { r.queue = r.queue[n:] }

// more waits for the events after the queue, and appends them to it. If there are none within
// patience, that is not an error. If the offset next is not there any more, because it was trimmed,
// or because the store was rewound (other events may have the offset now), the reader moves to the
// nearest offset that is there, and outside says so.
func (r *reader) more(ctx context.Context, patience time.Duration) (outside *eventlog.RangeError, err error) {
	got, err := r.log.Fetch(ctx, eventlog.Want{
		Spans:   []eventlog.Span{{Partition: r.id, From: r.next, MaxBytes: readBytes}},
		MaxWait: patience,
		Epoch:   &r.epoch,
	})
	if err != nil {
		return nil, err
	}
	var damaged *eventlog.DamagedError
	switch slice := got[0]; {
	case errors.As(slice.Err, &damaged) && damaged.Next > r.next:
		return nil, &brokenError{from: r.next, next: damaged.Next, raw: damaged.Raw, err: damaged}
	case errors.As(slice.Err, &outside):
		r.goTo(min(max(outside.Asked, outside.First), outside.Next))
		return outside, nil
	case slice.Err != nil:
		return nil, slice.Err
	default:
		return nil, r.decodeAll(slice.Batches)
	}
}

// dropLost drops events from the queue that the store has lost since they were read. outside says
// which; nil: it has lost none. It costs no trip.
func (r *reader) dropLost() (outside *eventlog.RangeError) {
	now := r.log.LeaderEpoch()
	if r.epoch >= now {
		return nil
	}
	_, end, known := r.log.EpochEnd(r.id, r.epoch, r.next)
	r.epoch = now
	if known && end < r.next {
		outside = &eventlog.RangeError{Partition: r.id, Asked: r.next, First: min(r.first(), end), Next: end}
		r.goTo(end)
	}
	return outside
}

// first is the offset of the next event to take.
func (r *reader) first() eventlog.Offset {
	if len(r.queue) > 0 {
		return r.queue[0].at()
	}
	return r.next
}

// goTo continues at an offset. Events of the queue from that offset on are dropped.
func (r *reader) goTo(next eventlog.Offset) {
	r.next = next
	if i := slices.IndexFunc(r.queue, func(e Event) bool { return e.at() >= next }); i >= 0 {
		r.queue = r.queue[:i]
	}
}

func (r *reader) decodeAll(batches []eventlog.Placed) error {
	const most = 4096 // a compressed batch may claim more records than it has
	records := 0
	for _, b := range batches {
		records += min(int(b.Records), most)
	}
	r.queue = slices.Grow(r.queue, records)
	size := 0
	for _, b := range batches {
		if size > decodedBytes {
			break // the next read begins here
		}
		n, err := r.decode(b)
		if err != nil {
			return err
		}
		size += n
	}
	return nil
}

// decode appends the events of a batch to the queue, from r.next on. The bytes are copied: the
// batch's bytes are shared with other readers, and handlers may change their events. size is the
// memory that the events take.
func (r *reader) decode(b eventlog.Placed) (size int, err error) {
	end := b.End()
	if end <= r.next {
		return 0, nil
	}
	b.Bytes = slices.Clone(b.Bytes)
	for rec, err := range b.Decode() {
		if err != nil {
			batch.Patch(b.Bytes, int64(b.Base), 0)
			return size, &brokenError{from: r.next, next: end, raw: b.Bytes, err: err}
		}
		if at := eventlog.Offset(rec.Offset); at >= r.next {
			r.queue = append(r.queue, Event{Record: rec})
			r.next = at + 1
			size += rec.DecodedSize() + batch.SealedSize(&rec)
		}
	}
	r.next = end // also past a control batch, which has no events
	return size, nil
}
