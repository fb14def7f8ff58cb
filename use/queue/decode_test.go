package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// endsAfter is a context that ends once it was asked so many times.
type endsAfter struct {
	context.Context
	asked, most int
}

func (c *endsAfter) Err() error {
	if c.asked++; c.asked > c.most {
		return context.Canceled
	}
	return nil
}

func TestDecodingABatchForAClaimEndsWithTheRequest(t *testing.T) {
	const size, count = 64 << 10, 200
	some := make([]batch.Record, count)
	for i := range some {
		some[i].Value = make([]byte, size)
	}
	raw, err := batch.Seal(some, batch.Gzip)
	if err != nil {
		t.Fatal(err)
	}
	placed := eventlog.Placed{Batch: eventlog.Batch{Records: count, Bytes: raw}}
	r := &records{decoding: make(chan struct{}, 1)}
	ctx := &endsAfter{Context: t.Context(), most: 3}
	if got, _, err := r.decode(ctx, placed); !errors.Is(err, context.Canceled) || len(got) != 0 || ctx.asked > ctx.most+2 {
		t.Errorf("%d records of a request that ended, which was noticed after %d MiB: %v", len(got), ctx.asked, err)
	}
	if got, next, err := r.decode(t.Context(), placed); err != nil || len(got) != count || next != count {
		t.Errorf("%d records, next %d, %v", len(got), next, err)
	}
	r.decoding <- struct{}{}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := r.decode(ended, placed); !errors.Is(err, context.Canceled) {
		t.Errorf("while others decode, a request that ended gets %v", err)
	}
}
