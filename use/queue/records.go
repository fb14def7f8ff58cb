package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

const (
	// readBytes is about how much is read at a time. A batch that is larger comes as a whole.
	readBytes = 1 << 20
	// pagesMax bounds the pages kept for a partition: workers are near each other, and one trip serves many of them.
	pagesMax = 4
)

// records reads messages from the log. A batch holds many and its records are decoded once, for all the claims
// that come after.
type records struct {
	log *eventlog.Log

	mu    sync.Mutex // guards pages
	pages map[eventlog.Partition]*pages
}

// pages are the runs of records of one partition that were read last, the newest last.
type pages struct {
	mu   sync.Mutex // guards kept, and the trip
	kept [][]batch.Record
}

func newRecords(log *eventlog.Log) *records {
	return &records{log: log, pages: make(map[eventlog.Partition]*pages)}
}

// read returns the record at an offset. It is shared and must not be changed. errNoRecord: the log does not have it any more, or it is
// none that people published.
func (r *records) read(ctx context.Context, p eventlog.Partition, o eventlog.Offset) (batch.Record, error) {
	r.mu.Lock()
	ps := r.pages[p]
	if ps == nil {
		ps = &pages{}
		r.pages[p] = ps
	}
	r.mu.Unlock()

	ps.mu.Lock()
	defer ps.mu.Unlock()
	if rec, ok := ps.find(o); ok {
		return rec, nil
	}
	page, err := r.fetch(ctx, p, o)
	if err != nil {
		return batch.Record{}, err
	}
	if len(ps.kept) == pagesMax {
		ps.kept = slices.Delete(ps.kept, 0, 1)
	}
	ps.kept = append(ps.kept, page)
	if rec, ok := ps.find(o); ok {
		return rec, nil
	}
	return batch.Record{}, errNoRecord
}

var errNoRecord = errors.New("the log does not have the message any more")

func (ps *pages) find(o eventlog.Offset) (batch.Record, bool) {
	for _, page := range slices.Backward(ps.kept) {
		if len(page) == 0 || page[0].Offset > int64(o) || page[len(page)-1].Offset < int64(o) {
			continue
		}
		i, found := slices.BinarySearchFunc(page, int64(o), func(r batch.Record, want int64) int { return int(r.Offset - want) })
		if found {
			return page[i], true
		}
	}
	return batch.Record{}, false
}

// fetch reads and decodes what begins with the batch that holds an offset.
func (r *records) fetch(ctx context.Context, p eventlog.Partition, o eventlog.Offset) ([]batch.Record, error) {
	if held, _ := r.log.Known(p); o >= held.Next { // another process told of the message by the queue's state, and its append was not heard of yet
		if _, err := r.log.Bounds(ctx, p); err != nil {
			return nil, err
		}
	}
	got, err := r.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: o, MaxBytes: readBytes}}})
	if err != nil {
		return nil, err
	}
	var outside *eventlog.RangeError
	if errors.As(got[0].Err, &outside) && o < outside.First {
		return nil, errNoRecord
	}
	if got[0].Err != nil {
		return nil, got[0].Err
	}
	if len(got[0].Batches) == 0 {
		return nil, fmt.Errorf("partition %d holds [%d, %d), and not the message at %d", p, got[0].Bounds.First, got[0].Bounds.Next, o)
	}
	var page []batch.Record
	for _, b := range got[0].Batches {
		raw := slices.Clone(b.Bytes)
		batch.Patch(raw, int64(b.Base), 0)
		if h, err := batch.Parse(raw); err == nil && h.Attributes.Control() {
			continue
		}
		for rec, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
			if err != nil {
				return nil, fmt.Errorf("the batch at offset %d of partition %d cannot be read: %w", b.Base, p, err)
			}
			page = append(page, rec)
		}
	}
	return page, nil
}
