package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// Batches that are small in the log and large in memory are not all decoded because one of them is
// wanted.
func TestAPageEndsWhereItsRecordsTakeMuchMemory(t *testing.T) {
	const headers, batches, each = 150_000, 10, 150_000 * 40
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = log.Run(ctx) }()
	defer func() { stop(); <-done }()
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "t", Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := topic.Partitions[0]
	put := func(headers int) {
		raw, err := batch.Seal([]batch.Record{{Headers: make([]batch.RecordHeader, headers)}}, batch.Zstd)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := log.Append(t.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, Bytes: raw}}}); err != nil {
			t.Fatal(err)
		}
	}
	for range batches {
		put(headers)
	}
	put(batch.DecodedMax/40 + 1)
	put(1)
	r := newRecords(log, nil)
	for _, o := range []eventlog.Offset{0, batches / 2, batches - 1} {
		pg, err := r.fetch(t.Context(), p, o)
		if err != nil || len(pg.records) < 1 || pg.bytes < len(pg.records)*each || pg.bytes > decodedBytes+2*each || pg.next != o+eventlog.Offset(len(pg.records)) {
			t.Fatalf("the page at offset %d has %d records of %d bytes, and ends at %d: %v", o, len(pg.records), pg.bytes, pg.next, err)
		}
	}
	if _, err := r.read(t.Context(), p, batches); !errors.Is(err, errUnreadable) || !errors.Is(err, batch.ErrDecodedTooLarge) {
		t.Errorf("a stored record with more headers than are decoded: %v", err)
	}
	if _, err := r.read(t.Context(), p, batches+1); err != nil {
		t.Errorf("the record after it: %v", err)
	}
}
