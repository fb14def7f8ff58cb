package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes is about how much is read at a time. A batch that is larger comes as a whole.
	readBytes = 1 << 20
	// pagesMax and pageBytesMax bound the cached pages: workers read neighbouring offsets, so that one read serves many of them. The
	// newest page is cached however large it is.
	pagesMax     = 256
	pageBytesMax = 64 << 20
	// decodedBytes ends a page after the batch that passes it: decompressed, the batches of one read may have a hundred times as many bytes.
	decodedBytes = 16 << 20
)

var (
	errNoRecord   = errors.New("the log does not have the message any more")
	errNoneYet    = errors.New("the log does not have the message yet")
	errUnreadable = errors.New("the message cannot be read")
)

// records reads messages from the log. A batch holds many and its records are decoded once, for all the claims
// that come after.
type records struct {
	log      *eventlog.Log
	decoding chan struct{} // limits decoding to one batch per processor at a time

	mu      sync.Mutex      // guards what follows
	changed <-chan struct{} // closed: the store may have lost what pages hold, and have given its offsets to others
	pages   []page          // the newest last
	bytes   int             // of pages
	trips   map[eventlog.Partition]*trip
}

// page is a read part of a partition: its records in [from, next), or why they cannot be read.
type page struct {
	partition  eventlog.Partition
	from, next eventlog.Offset
	records    []batch.Record
	err        error
	bytes      int
}

// trip lets one reader of a partition read the log, while the others wait for its result.
type trip struct {
	mu    sync.Mutex
	users int
}

func newRecords(log *eventlog.Log) *records {
	return &records{log: log, decoding: make(chan struct{}, runtime.GOMAXPROCS(0)), changed: log.IncarnationChanged(), trips: make(map[eventlog.Partition]*trip)}
}

// gone reports whether a record does not exist any more, or cannot be read by anybody.
func gone(err error) bool { return errors.Is(err, errNoRecord) || errors.Is(err, errUnreadable) }

// read returns the record at an offset. It is shared and must not be changed. errNoRecord: the log no longer has it, or it is a
// control record. errNoneYet: it is past the partition's end. errUnreadable: its batch cannot be decoded.
func (r *records) read(ctx context.Context, p eventlog.Partition, o eventlog.Offset) (batch.Record, error) {
	if rec, found, err := r.find(p, o); found {
		return rec, err
	}
	defer r.travel(p)()
	if rec, found, err := r.find(p, o); found { // another reader brought it
		return rec, err
	}
	changed := r.log.IncarnationChanged()
	got, err := r.fetch(ctx, p, o)
	if errors.Is(err, errNoneYet) { // another process may have claimed what this one did not hear of
		if _, err := r.log.Bounds(ctx, p); err != nil {
			return batch.Record{}, err
		}
		got, err = r.fetch(ctx, p, o)
	}
	if err != nil {
		return batch.Record{}, err
	}
	r.keep(got, changed)
	return got.find(o)
}

// travel waits until no other reader reads the log for a partition. The function it returns ends the read.
func (r *records) travel(p eventlog.Partition) (over func()) {
	r.mu.Lock()
	t := r.trips[p]
	if t == nil {
		t = &trip{}
		r.trips[p] = t
	}
	t.users++
	r.mu.Unlock()
	t.mu.Lock()
	return func() {
		t.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(r.trips, p)
		}
	}
}

func (r *records) find(p eventlog.Partition, o eventlog.Offset) (rec batch.Record, found bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startAnew()
	for _, pg := range slices.Backward(r.pages) {
		if pg.partition == p && pg.from <= o && o < pg.next {
			rec, err = pg.find(o)
			return rec, true, err
		}
	}
	return rec, false, nil
}

// startAnew drops all pages after the store may have been rewound. The caller holds r.mu.
func (r *records) startAnew() {
	if isClosed(r.changed) {
		r.pages, r.bytes, r.changed = nil, 0, r.log.IncarnationChanged()
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// keep caches a page, if the store is still in the incarnation in which it was read.
func (r *records) keep(pg page, changed <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.startAnew()
	if isClosed(changed) {
		return
	}
	r.pages = append(r.pages, pg)
	r.bytes += pg.bytes
	drop := 0
	for len(r.pages)-drop > 1 && (len(r.pages)-drop > pagesMax || r.bytes > pageBytesMax) {
		r.bytes -= r.pages[drop].bytes
		drop++
	}
	r.pages = slices.Delete(r.pages, 0, drop)
}

func (pg page) find(o eventlog.Offset) (batch.Record, error) {
	if pg.err != nil {
		return batch.Record{}, pg.err
	}
	i, found := slices.BinarySearchFunc(pg.records, int64(o), func(r batch.Record, want int64) int { return int(r.Offset - want) })
	if !found {
		return batch.Record{}, errNoRecord
	}
	return pg.records[i], nil
}

// fetch reads and decodes what begins with the batch that holds an offset, up to the first one that cannot be read.
func (r *records) fetch(ctx context.Context, p eventlog.Partition, o eventlog.Offset) (page, error) {
	got, err := r.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: o, MaxBytes: readBytes}}})
	if err != nil {
		return page{}, err
	}
	var outside *eventlog.RangeError
	var damaged *eventlog.DamagedError
	switch err := got[0].Err; {
	case errors.As(err, &outside) && o < outside.First:
		return page{}, errNoRecord
	case errors.As(err, &outside):
		return page{}, fmt.Errorf("%w: %w", errNoneYet, err)
	case errors.As(err, &damaged):
		return page{}, fmt.Errorf("%w: %w", errUnreadable, err)
	case err != nil:
		return page{}, err
	case len(got[0].Batches) == 0:
		return page{}, fmt.Errorf("%w: partition %d ends before offset %d", errNoneYet, p, o)
	}
	pg := page{partition: p, from: o, next: o}
	for i, b := range got[0].Batches {
		if pg.bytes > decodedBytes {
			break // who wants the others asks for them
		}
		records, next, err := r.decode(ctx, b)
		switch {
		case ctx.Err() != nil:
			return page{}, fmt.Errorf("%w: gave up while a batch was decoded (%w)", eventlog.ErrUnavailable, context.Cause(ctx))
		case err != nil && i > 0:
			return pg, nil // who wants it asks for it
		case err != nil:
			pg.next, pg.err = max(next, o+1), fmt.Errorf("%w: the batch at offset %d of partition %d does not decode: %w", errUnreadable, b.Base, p, err)
			return pg, nil
		}
		pg.records, pg.next = append(pg.records, records...), next
		for i := range records {
			pg.bytes += records[i].DecodedSize() + batch.SealedSize(&records[i])
		}
	}
	return pg, nil
}

// checkBytes is how much is decoded between two looks at whether the request has ended.
const checkBytes = 1 << 20

// decode decodes the records of a batch, none where it is for machines alone, and says which offset comes after it. It waits for its turn, and ends
// with ctx, also in the middle of the batch.
func (r *records) decode(ctx context.Context, b eventlog.Placed) (records []batch.Record, next eventlog.Offset, err error) {
	select {
	case r.decoding <- struct{}{}:
		defer func() { <-r.decoding }()
	case <-ctx.Done():
		return nil, b.Base, ctx.Err()
	}
	raw := slices.Clone(b.Bytes)
	batch.Patch(raw, int64(b.Base), 0)
	h, err := batch.Parse(raw)
	if err != nil {
		return nil, b.Base + 1, err
	}
	next = b.Base + eventlog.Offset(h.LastOffsetDelta) + 1
	if h.Attributes.Control() {
		return nil, next, nil
	}
	unchecked := 0 // bytes since ctx was looked at
	for rec, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
		if err != nil {
			return nil, next, err
		}
		if unchecked += rec.DecodedSize() + len(rec.Key) + len(rec.Value); unchecked >= checkBytes {
			if unchecked = 0; ctx.Err() != nil {
				return nil, b.Base, ctx.Err()
			}
		}
		records = append(records, rec)
	}
	return records, next, nil
}
