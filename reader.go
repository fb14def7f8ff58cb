package weir

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes is about how much of a partition is read at a time. A batch that is larger comes as a whole.
	readBytes = 1 << 20
	// decodedBytes ends a read after the batch that passes it: decompressed, the batches of one read may have a hundred times as many bytes.
	decodedBytes = 16 << 20
	// readWait is how long one wait for events lasts. Nothing happens at its end: the next one begins.
	readWait = time.Minute
)

// reader reads the events of one partition, in order.
type reader struct {
	log   *eventlog.Log
	of    TopicPartition
	id    eventlog.Partition
	from  *partition      // for Event.from
	next  eventlog.Offset // of the event that follows the queue
	queue []Event         // read, and not yet taken
}

// brokenError is a run of events that cannot be read: whoever published them compressed them wrongly.
type brokenError struct {
	from, next eventlog.Offset
	raw        []byte
	err        error
}

func (e *brokenError) Error() string { return "the batch cannot be read: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// event is the one that stands for them.
func (e *brokenError) event(p *partition) Event {
	return Event{Topic: p.name.Topic, Partition: p.name.Partition, Offset: int64(e.from), Value: e.raw, Attempt: 1, from: p}
}

// seek goes elsewhere.
func (r *reader) seek(to eventlog.Offset) { r.next, r.queue = to, nil }

// take drops the first n events of the queue. They belong to whoever got them.
func (r *reader) take(n int) { r.queue = r.queue[n:] }

// more waits for events behind those of the queue, and appends them to it; at most for so long, and until ctx ends, neither of which
// is an error. Where the place is not there any more, because what it held was trimmed, or the store is an older copy of itself,
// the reader goes on with the nearest that is, and says so.
func (r *reader) more(ctx context.Context, patience time.Duration) (outside *eventlog.RangeError, err error) {
	got, err := r.log.Fetch(ctx, eventlog.Want{
		Spans:   []eventlog.Span{{Partition: r.id, From: r.next, MaxBytes: readBytes}},
		MaxWait: patience,
	})
	if err != nil {
		return nil, err
	}
	var damaged *eventlog.DamagedError
	switch slice := got[0]; {
	case errors.As(slice.Err, &damaged) && damaged.Next > r.next:
		return nil, &brokenError{from: r.next, next: damaged.Next, raw: damaged.Raw, err: damaged}
	case errors.As(slice.Err, &outside):
		r.next = min(max(outside.Asked, outside.First), outside.Next)
		return outside, nil
	case slice.Err != nil:
		return nil, slice.Err
	default:
		return nil, r.decodeAll(slice.Batches)
	}
}

func (r *reader) decodeAll(batches []eventlog.Placed) error {
	const most = 4096 // a compressed batch may count more records than it has
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

// decode appends the events of a batch to the queue, from r.next on. The bytes are copied: those of the batch are shared with other readers, and
// handlers may do what they like with their events. size is the memory that they take.
func (r *reader) decode(b eventlog.Placed) (size int, err error) {
	end := b.Base + eventlog.Offset(b.Records)
	if end <= r.next {
		return 0, nil
	}
	raw := slices.Clone(b.Bytes)
	batch.Patch(raw, int64(b.Base), 0)
	if h, err := batch.Parse(raw); err == nil && h.Attributes.Control() {
		r.next = end // marks of a broker's own
		return 0, nil
	}
	for rec, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
		if err != nil {
			return size, &brokenError{from: r.next, next: end, raw: raw, err: err}
		}
		if at := eventlog.Offset(rec.Offset); at >= r.next {
			r.queue = append(r.queue, r.event(rec))
			r.next = at + 1
			size += rec.DecodedSize() + batch.SealedSize(&rec)
		}
	}
	return size, nil
}

func (r *reader) event(rec batch.Record) Event {
	e := Event{
		Topic: r.of.Topic, Partition: r.of.Partition, Offset: rec.Offset,
		Key: rec.Key, Value: rec.Value, Headers: rec.Headers, from: r.from,
	}
	if rec.Timestamp != batch.NoTimestamp {
		e.Time = time.UnixMilli(rec.Timestamp)
	}
	return e
}
