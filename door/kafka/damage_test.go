package kafka_test

import (
	"context"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// rotten is a store that gives one batch of each partition back with a byte changed.
type rotten struct {
	eventlog.Store
	base eventlog.Offset
}

func (r rotten) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	got, err := r.Store.Read(ctx, spans, maxBytes)
	for _, s := range got {
		for _, b := range s.Batches {
			if b.Base == r.base {
				b.Bytes[len(b.Bytes)-2]++ // of the value
			}
		}
	}
	return got, err
}

// lost is a store in which a batch of each partition is missing.
type lost struct {
	eventlog.Store
	base eventlog.Offset
}

func (l lost) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	got, err := l.Store.Read(ctx, spans, maxBytes)
	for i := range got {
		got[i].Batches = slices.DeleteFunc(got[i].Batches, func(b eventlog.Placed) bool { return b.Base == l.base })
	}
	return got, err
}

// A changed byte is never another amount, and a batch that is missing is not passed over: clients
// are told CORRUPT_MESSAGE for that partition, and read on behind it.
func TestDamagedBatchesAreToldAsCorrupt(t *testing.T) {
	for name, damage := range map[string]func(eventlog.Store) eventlog.Store{
		"changed": func(s eventlog.Store) eventlog.Store { return rotten{s, 1} },
		"missing": func(s eventlog.Store) eventlog.Store { return lost{s, 1} },
	} {
		t.Run(name, func(t *testing.T) { damagedBatch(t, damage) })
	}
}

func damagedBatch(t *testing.T, damage func(eventlog.Store) eventlog.Store) {
	store := memory.New()
	writer := startOn(t, store, kafka.Config{})
	writer.createTopic("t", 2, nil)
	for range 3 {
		writer.mustProduce("t", 0, sealed(t, batch.None, value("amount 10")))
	}
	writer.mustProduce("t", 1, sealed(t, batch.None, value("well")))
	writer.stop()

	b := startOn(t, damage(store), kafka.Config{}) // which has nothing in memory
	req := fetchRequest("t", 0, 1)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 1000 // and so there is budget for the other
	other := req.Topics[0].Partitions[0]
	other.Partition, other.FetchOffset = 1, 0
	req.Topics[0].Partitions = append(req.Topics[0].Partitions, other)
	got := ask[*kmsg.FetchResponse](b, req).Topics[0].Partitions
	wantCode(t, "the damaged batch", got[0].ErrorCode, kerr.CorruptMessage)
	if len(got[0].RecordBatches) > 0 {
		t.Errorf("%d bytes come with the error", len(got[0].RecordBatches))
	}
	wantCode(t, "the other partition", got[1].ErrorCode, nil)
	if len(got[1].RecordBatches) == 0 {
		t.Error("nothing comes from the other partition")
	}
	for _, at := range []int64{0, 2} {
		if p := b.fetch("t", 0, at); p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
			t.Errorf("offset %d: error %d and %d bytes", at, p.ErrorCode, len(p.RecordBatches))
		}
	}
}
