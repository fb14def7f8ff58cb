package weir

import (
	"context"
	"fmt"
	"iter"

	"github.com/weir-log/weir/eventlog"
)

// Read yields the events of one partition, without a group: from a position up to the end that the
// partition had when Read began. It ends with the first error. If the store is rewound meanwhile,
// Read yields an error if yielded events were lost; otherwise it ends at the new end without an
// error.
//
//	for e, err := range w.Read(ctx, weir.TopicPartition{Topic: "orders"}, weir.AtTime(yesterday)) {
//		…
//	}
func (l *Log) Read(ctx context.Context, of TopicPartition, from Position) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if err := l.read(ctx, of, from, func(e Event) bool { return yield(e, nil) }); err != nil {
			yield(Event{}, fmt.Errorf("read %s/%d from %v: %w", of.Topic, of.Partition, from, err))
		}
	}
}

// read calls visit for each event. If visit returns false, read ends without an error.
func (l *Log) read(ctx context.Context, of TopicPartition, from Position, visit func(Event) bool) error {
	if err := l.usable(); err != nil {
		return err
	}
	topic, err := l.log.Topic(ctx, of.Topic)
	if err != nil {
		return err
	}
	if of.Partition < 0 || int(of.Partition) >= len(topic.Partitions) {
		return &InvalidError{What: "partition", Value: fmt.Sprint(of.Partition), Why: fmt.Sprintf("topic %q has the partitions 0 to %d", of.Topic, len(topic.Partitions)-1)}
	}
	id := topic.Partitions[of.Partition]
	epoch := l.log.LeaderEpoch()
	bounds, err := l.log.Bounds(ctx, id)
	if err == nil {
		err = bounds[0].Err
	}
	if err != nil {
		return err
	}
	r := reader{log: l.log, of: of, id: id, epoch: epoch}
	starts, err := l.resolveIn(ctx, from, []place{{of, id}}, bounds)
	if err != nil {
		return err
	}
	r.next = starts[0]
	for end := bounds[0].Bounds.Next; r.next < end; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		before := r.epoch
		outside, err := r.more(ctx, 0)
		if outside != nil && outside.Asked > outside.Next {
			return outside // the store was rewound, and lost events that were yielded
		}
		if _, cut, known := l.log.EpochEnd(id, before, end); known && r.epoch != before {
			end = cut // what follows was published after Read began
		}
		for _, e := range r.queue {
			if eventlog.Offset(e.Offset) >= end || !visit(e) {
				return nil
			}
		}
		r.take(len(r.queue))
		if err != nil {
			return err
		}
	}
	return nil
}
