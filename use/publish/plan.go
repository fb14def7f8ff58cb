package publish

import (
	"context"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// bytesMax bounds the events of one call: they are sent to the store as a whole, and stay in memory
// until they are stored.
const bytesMax = 16 << 20

// plan is the events of one call, by partition.
type plan struct {
	batches []*partitionBatch // in the order of their first events
	where   []int             // each event's index in batches
}

// partitionBatch is the events for one partition, in their order.
type partitionBatch struct {
	topic     eventlog.Topic
	number    int32
	partition eventlog.Partition
	records   []batch.Record
	size      int // at least the size of one batch with all of them
}

// plan chooses every event's partition. It refuses all when one is refused, or when there is none.
func (p *Publisher) plan(ctx context.Context, events []Event) (*plan, error) {
	if len(events) == 0 {
		return nil, &eventlog.InvalidError{What: "number of events", Value: "0", Why: "at least 1 is needed"}
	}
	pl := &plan{where: make([]int, len(events))}
	byPartition := make(map[eventlog.Partition]int)
	total := 0
	for i := range events {
		t, err := p.target(ctx, &events[i])
		if err != nil {
			return nil, fmt.Errorf("publish event %d of %d, to topic %q: %w", i, len(events), events[i].Topic, err)
		}
		if total += t.size; total > bytesMax {
			return nil, fmt.Errorf("%w: the first %d of %d events have %d bytes, and one call may publish at most %d", eventlog.ErrTooLarge, i+1, len(events), total, bytesMax)
		}
		partition := t.topic.Partitions[t.number]
		at, seen := byPartition[partition]
		if !seen {
			at = len(pl.batches)
			byPartition[partition] = at
			pl.batches = append(pl.batches, &partitionBatch{topic: t.topic, number: t.number, partition: partition})
		}
		pl.where[i] = at
		pl.batches[at].add(t)
	}
	return pl, nil
}

func (l *partitionBatch) add(t target) {
	l.records = append(l.records, t.record)
	l.size += t.size
}

// loose returns the only partition's events, if they can share a batch with events of other
// callers.
func (pl *plan) loose() (*partitionBatch, bool) {
	l := pl.batches[0]
	if len(pl.batches) > 1 || l.size > l.topic.FilledBytes() {
		return nil, false
	}
	for i := range l.records {
		if l.records[i].Timestamp == 0 {
			return nil, false // see Event.epoch
		}
	}
	return l, true
}

// entry seals the batches. first is the index of each partition's first batch in the entry.
func (pl *plan) entry() (e eventlog.Entry, first []int, err error) {
	for _, l := range pl.batches {
		first = append(first, len(e.Batches))
		sealed, err := l.topic.SealAll(l.partition, l.records)
		if err != nil {
			return e, nil, fmt.Errorf("publish to topic %q: %w", l.topic.Name, err)
		}
		e.Batches = append(e.Batches, sealed...)
	}
	return e, first, nil
}

// within returns where each event is in the entry's batches, given the index of each partition's
// first batch.
func (pl *plan) within(batches []eventlog.Batch, first []int) []Within {
	next := make([]Within, len(first)) // of each partition
	for i, b := range first {
		next[i].Batch = b
	}
	in := make([]Within, len(pl.where))
	for i, at := range pl.where {
		in[i] = next[at]
		if next[at].Record++; next[at].Record == int(batches[next[at].Batch].Records) {
			next[at] = Within{Batch: next[at].Batch + 1}
		}
	}
	return in
}

// bases picks the base offset of each partition's first batch. The batches of a partition are
// neighbours in the entry.
func bases(out eventlog.Outcome, first []int) []eventlog.Offset {
	at := make([]eventlog.Offset, len(first))
	for i, b := range first {
		at[i] = out.Base[b]
	}
	return at
}

// placed returns where each event went, given each partition's first offset.
func (pl *plan) placed(bases []eventlog.Offset) []Placed {
	placed := make([]Placed, len(pl.where))
	for i, at := range pl.where {
		placed[i] = Placed{Partition: pl.batches[at].number, Offset: bases[at]}
		bases[at]++
	}
	return placed
}
