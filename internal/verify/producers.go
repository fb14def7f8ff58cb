package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// producersMost bounds the producers whose newest batch is remembered while the log is read.
const producersMost = 200_000

// producers compares the states of idempotent producers with their batches.
type producers struct {
	newest map[producerIn]eventlog.Offset // where the newest batch is that was read
}

type producerIn struct {
	id int64
	eventlog.Partition
}

func (ps *producers) check() Check { return Check{Name: "producers", Visit: ps.visit, Run: ps.run} }

func (ps *producers) visit(*Exam, eventlog.Topic, int) Visitor {
	return func(_ context.Context, batches []eventlog.Placed) error {
		for _, b := range batches {
			h, err := batch.Parse(b.Bytes)
			if err != nil {
				return err
			}
			key := producerIn{h.ProducerID, b.Partition}
			if _, known := ps.newest[key]; h.ProducerID >= 0 && (known || len(ps.newest) < producersMost) {
				ps.newest[key] = b.Base
			}
		}
		return nil
	}
}

func (ps *producers) run(ctx context.Context, x *Exam) error {
	return x.Keys(ctx, eventlog.ProducersPrefix, func(page []eventlog.KeyValue) error {
		for _, kv := range page {
			if err := x.Judge(ctx, func(v *View) error { return ps.look(ctx, v, kv.Key) }); err != nil {
				return err
			}
		}
		return nil
	})
}

const forgetProducer = "stop the producer; once the state has expired it begins anew; check what it published around this offset"

// look compares the state of a producer with the batches that it names.
func (ps *producers) look(ctx context.Context, v *View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	p, state, err := eventlog.ProducerIn(kvs[0])
	if err != nil {
		v.Find(AtKey(key), "restore the key from a backup", "it is no state of a producer: %v", err)
		return nil
	}
	replaced, err := v.Get(ctx, eventlog.ReplacedKey(p))
	if err != nil {
		return err
	}
	if len(state.Batches) == 0 {
		return nil // its epoch has no batch yet
	}
	last := state.Batches[len(state.Batches)-1]
	if newest := ps.newest[producerIn{state.ID, p}]; newest > last.Base && replaced[0].Version == 0 {
		v.Find(AtKey(key), forgetProducer, "the state of producer %d has its newest batch at offset %d of partition %d, but the log has a newer one at %d: if the producer repeats it, it is appended twice", state.ID, last.Base, p, newest)
	}
	for _, b := range state.Batches {
		read, err := v.Read(ctx, p, b.Base, 1)
		if err != nil {
			return err
		}
		about := fmt.Sprintf("the state of producer %d has its sequence numbers %d to %d at offset %d of partition %d", state.ID, b.First, b.Last, b.Base, p)
		switch {
		case errors.Is(read.Err, eventlog.ErrNoPartition):
			return nil // the topic was deleted: the state expires
		case b.Base >= read.Bounds.Next:
			v.Find(AtKey(key), forgetProducer, "%s, which ends at %d", about, read.Bounds.Next)
		case b.Base < read.Bounds.First, replaced[0].Version != 0, len(read.Batches) == 0:
			// Trimmed; or compacted, which forgets producers; or damaged: a finding of the log.
		default:
			h, err := batch.Parse(read.Batches[0].Bytes)
			if err != nil {
				continue // a finding of the log
			}
			if got := read.Batches[0]; got.Base != b.Base || h.ProducerID != state.ID || h.ProducerEpoch != state.Epoch || h.BaseSequence != b.First {
				v.Find(AtKey(key), forgetProducer, "%s; the batch there begins at %d, and is of producer %d, epoch %d, from sequence number %d on", about, got.Base, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
			}
		}
	}
	return nil
}
