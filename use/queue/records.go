package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes is about how much is read at a time. A batch that is larger comes as a whole.
	readBytes = 1 << 20
	// pagesMax and pageBytesMax bound the cached pages: workers read neighbouring offsets, so that
	// one read serves many of them. The newest page is cached however large it is.
	pagesMax     = 256
	pageBytesMax = 64 << 20
	// A page ends after the batch that makes it larger than decodedBytes: decompressed, the batches
	// of one read may be a hundred times as large as readBytes.
	decodedBytes = 16 << 20
)

var (
	errNoRecord   = errors.New("the log does not have the message any more")
	errNoneYet    = errors.New("the log does not have the message yet")
	errUnreadable = errors.New("the message cannot be read")
)

// records reads messages from the log. A batch holds many records. They are decoded once and
// cached, for all claims that come after.
type records struct {
	log      *eventlog.Log
	start    func(func(context.Context)) bool // runs a trip in the background; nil: each reader reads for itself
	decoding chan struct{}                    // limits decoding to one batch per processor at a time

	mu      sync.Mutex      // guards what follows
	changed <-chan struct{} // closed: the store may have been rewound, and the offsets in pages may have other records
	pages   []page          // the newest last
	bytes   int             // how many bytes the pages have
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

// trip is one read of a partition, for all readers of the partition that come meanwhile. It goes on
// as long as a reader waits, and tripLingers longer: otherwise, if a batch takes longer to decode
// than a claim waits, each claim would begin the decoding again, and none would finish it.
type trip struct {
	offset eventlog.Offset
	users  int // guarded by records.mu, like left
	left   int // how often the last user left
	end    context.CancelFunc

	done    chan struct{} // closed once the fields below are set
	page    page
	err     error
	ended   bool            // it was cancelled, since nobody waited or the process ends: err is not the log's
	changed <-chan struct{} // closed: the store may have lost the records of page
}

// tripLingers is how long a trip without readers goes on, for a reader that asks again.
const tripLingers = 5 * time.Second

// newRecords returns a reader of messages. start runs a function in a goroutine, and reports
// whether it does; nil: each reader reads for itself.
func newRecords(log *eventlog.Log, start func(func(context.Context)) bool) *records {
	return &records{log: log, start: start, decoding: make(chan struct{}, runtime.GOMAXPROCS(0)), changed: log.IncarnationChanged(), trips: make(map[eventlog.Partition]*trip)}
}

// gone reports whether a record does not exist any more, or cannot be read by anybody.
func gone(err error) bool { return errors.Is(err, errNoRecord) || errors.Is(err, errUnreadable) }

// read returns the record at an offset. It is shared and must not be changed. errNoRecord: the log
// no longer has it, or it is a control record. errNoneYet: it is past the partition's end.
// errUnreadable: its batch cannot be decoded.
func (r *records) read(ctx context.Context, p eventlog.Partition, o eventlog.Offset) (batch.Record, error) {
	for {
		if rec, found, err := r.find(p, o); found {
			return rec, err
		}
		t := r.join(ctx, p, o)
		select {
		case <-t.done:
		case <-ctx.Done():
		}
		r.leave(p, t)
		switch {
		case !isClosed(t.done), t.ended && ctx.Err() != nil:
			return batch.Record{}, fmt.Errorf("%w: gave up while reading and decoding a batch (%w)", r.log.Late(time.Time{}), context.Cause(ctx))
		case t.ended, isClosed(t.changed): // its records may be gone from the store
		case t.err == nil && t.page.from <= o && o < t.page.next:
			return t.page.find(o)
		case t.err != nil && t.offset == o:
			return batch.Record{}, t.err
		}
	}
}

// join joins the trip of a partition that is under way, or begins one.
func (r *records) join(ctx context.Context, p eventlog.Partition, o eventlog.Offset) *trip {
	r.mu.Lock()
	t := r.trips[p]
	if t != nil {
		t.users++
		r.mu.Unlock()
		return t
	}
	own, end := context.WithCancel(context.Background())
	t = &trip{offset: o, users: 1, end: end, done: make(chan struct{}), changed: r.log.IncarnationChanged()}
	r.trips[p] = t
	r.mu.Unlock()
	bring := func(run context.Context) {
		defer context.AfterFunc(run, end)()
		r.bring(own, p, t)
	}
	if r.start == nil || !r.start(bring) {
		bring(ctx)
	}
	return t
}

// leave notes that a reader waits no longer. A trip without readers ends after tripLingers.
func (r *records) leave(p eventlog.Partition, t *trip) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t.users--; t.users > 0 || isClosed(t.done) {
		return
	}
	t.left++
	left := t.left
	time.AfterFunc(tripLingers, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if t.users == 0 && t.left == left {
			r.forget(p, t) // later readers begin another trip
			t.end()
		}
	})
}

// forget lets the next reader begin another trip. The caller holds r.mu.
func (r *records) forget(p eventlog.Partition, t *trip) {
	if r.trips[p] == t {
		delete(r.trips, p)
	}
}

// bring does the read of a trip.
func (r *records) bring(ctx context.Context, p eventlog.Partition, t *trip) {
	t.page, t.err = r.fetch(ctx, p, t.offset)
	if errors.Is(t.err, errNoneYet) { // another process may have claimed a message of which this one has not heard yet
		if _, t.err = r.log.Bounds(ctx, p); t.err == nil {
			t.page, t.err = r.fetch(ctx, p, t.offset)
		}
	}
	if t.err == nil {
		r.keep(t.page, t.changed)
	}
	t.ended = t.err != nil && ctx.Err() != nil
	t.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forget(p, t)
	close(t.done)
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

// fetch reads and decodes batches, from the one that holds an offset up to the first one that
// cannot be decoded, or until the page is larger than decodedBytes.
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
			break // the other batches are read when a reader asks for them
		}
		records, next, err := r.decode(ctx, b)
		switch {
		case ctx.Err() != nil:
			return page{}, gaveUpDecoding(ctx, r.log)
		case err != nil && i > 0:
			return pg, nil // a reader that asks for this batch gets the error
		case err != nil:
			pg.next, pg.err = max(next, o+1), fmt.Errorf("%w: the batch at offset %d of partition %d cannot be decoded: %w", errUnreadable, b.Base, p, err)
			return pg, nil
		}
		pg.records, pg.next = append(pg.records, records...), next
		for i := range records {
			pg.bytes += records[i].DecodedSize() + batch.SealedSize(&records[i])
		}
	}
	return pg, nil
}

func gaveUpDecoding(ctx context.Context, log *eventlog.Log) error {
	return fmt.Errorf("%w: gave up while decoding a batch (%w)", log.Late(time.Time{}), context.Cause(ctx))
}

// checkBytes is how much is decoded between two checks whether the request has ended.
const checkBytes = 1 << 20

// decode decodes the records of a batch, none if it is a control batch, and returns the offset
// after the batch. It waits for its turn, and ends when ctx ends, also in the middle of the batch.
func (r *records) decode(ctx context.Context, b eventlog.Placed) (records []batch.Record, next eventlog.Offset, err error) {
	select {
	case r.decoding <- struct{}{}:
		defer func() { <-r.decoding }()
	case <-ctx.Done():
		return nil, b.Base, ctx.Err()
	}
	b.Bytes = slices.Clone(b.Bytes)
	h, err := batch.Parse(b.Bytes)
	if err != nil {
		return nil, b.Base + 1, err
	}
	next = b.Base + eventlog.Offset(h.LastOffsetDelta) + 1
	believed := sync.OnceValue(func() bool { return h.Attributes.Own() || isWheel(r.log, b.Partition) })
	unchecked := 0 // bytes since ctx was checked
	for rec, err := range b.Decode() {
		if err != nil {
			return nil, next, err
		}
		if unchecked += rec.DecodedSize() + len(rec.Key) + len(rec.Value); unchecked >= checkBytes {
			if unchecked = 0; ctx.Err() != nil {
				return nil, b.Base, ctx.Err()
			}
		}
		if slices.ContainsFunc(rec.Headers, tellsPast) && !believed() {
			rec.Headers = slices.DeleteFunc(rec.Headers, tellsPast)
		}
		records = append(records, rec)
	}
	return records, next, nil
}
