package httpapi

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/budget"
)

func TestTheWaitForATurnToDecodeEndsWithTheRequest(t *testing.T) {
	turn := decoding{of: newSlots(1)}
	if err := turn.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := turn.acquireHolding(ctx, budget.New(1).Begin(), func() {}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Who has gone has at most checkBytes more decoded, whatever the batch decompresses to.
func TestDecodingEndsWithTheRequest(t *testing.T) {
	const size, count = 64 << 10, 200
	records := make([]batch.Record, count)
	for i := range records {
		records[i].Value = make([]byte, size)
	}
	raw, err := batch.Seal(records, batch.Gzip)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	visited := 0
	slice := eventlog.Slice{Batches: []eventlog.Placed{{Batch: eventlog.Batch{Records: count, Bytes: raw}}}}
	_, _, err = eachRecord(ctx, slice, 0, func(batch.Record) bool {
		visited++
		cancel()
		return true
	})
	if most := checkBytes / size; !errors.Is(err, context.Canceled) || visited > most {
		t.Errorf("%d records of %d bytes are visited after the end, %d are the most: %v", visited, size, most, err)
	}
}
