package weir

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/deliver"
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
	return deliver.Read(ctx, l.log, deliver.Place{TopicPartition: deliver.TopicPartition(of), ID: topic.Partitions[of.Partition]}, from.at, func(rec batch.Record) bool {
		return visit(eventOf(of.Topic, of.Partition, &rec))
	})
}

// Position is a place in a partition: Earliest (the zero value), Latest, AtOffset or AtTime.
type Position struct{ at deliver.Position }

var (
	// Earliest is the oldest event that is still there.
	Earliest = Position{}
	// Latest is after the newest event: only events published from now on follow.
	Latest = Position{deliver.Latest}
)

// AtOffset is the event with that offset.
func AtOffset(offset int64) Position { return Position{deliver.AtOffset(offset)} }

// AtTime is the first event whose Time is t or later; if there is none, it is Latest.
func AtTime(t time.Time) Position { return Position{deliver.AtTime(t)} }

func (p Position) String() string { return p.at.String() }
