package deliver

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Position is a place in a partition: Earliest (the zero value), Latest, AtOffset or AtTime.
type Position struct {
	kind   positionKind
	offset int64
	time   time.Time
}

type positionKind int

const (
	earliest positionKind = iota
	latest
	atOffset
	atTime
)

var (
	// Earliest is the oldest event that is still there.
	Earliest = Position{}
	// Latest is after the newest event.
	Latest = Position{kind: latest}
)

// AtOffset is the event with that offset.
func AtOffset(offset int64) Position { return Position{kind: atOffset, offset: offset} }

// AtTime is the first event whose timestamp is t or later; if there is none, it is Latest.
func AtTime(t time.Time) Position { return Position{kind: atTime, time: t} }

func (p Position) String() string {
	switch p.kind {
	case latest:
		return "latest"
	case atOffset:
		return fmt.Sprintf("offset %d", p.offset)
	case atTime:
		return "time " + p.time.Format(time.RFC3339Nano)
	}
	return "earliest"
}

// TopicPartition is one partition of a topic. Partitions count from 0.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Place is a partition's name and its number in the store.
type Place struct {
	TopicPartition
	ID eventlog.Partition
}

// Resolve finds a position's offsets in some partitions: one store call, and for AtTime two more
// for each thousand partitions, or for each 4 MiB of batches.
func (p Position) Resolve(ctx context.Context, log *eventlog.Log, places []Place) ([]eventlog.Offset, error) {
	if len(places) == 0 {
		return nil, nil
	}
	ids := make([]eventlog.Partition, len(places))
	for i, pl := range places {
		ids[i] = pl.ID
	}
	bounds, err := log.Bounds(ctx, ids...)
	if err != nil {
		return nil, err
	}
	return p.resolveIn(ctx, log, places, bounds)
}

// resolveIn is Resolve for partitions whose bounds are known.
func (p Position) resolveIn(ctx context.Context, log *eventlog.Log, places []Place, bounds []eventlog.Slice) ([]eventlog.Offset, error) {
	offsets := make([]eventlog.Offset, len(places))
	for i, s := range bounds {
		if s.Err == nil {
			offsets[i], s.Err = p.within(s.Bounds)
		}
		if s.Err != nil {
			return nil, fmt.Errorf("%s/%d: %w", places[i].Topic, places[i].Partition, s.Err)
		}
	}
	if p.kind != atTime {
		return offsets, nil
	}
	goals := make([]eventlog.Goal, len(places))
	for i, pl := range places {
		goals[i] = eventlog.Goal{Partition: pl.ID, At: eventlog.Timestamp(p.time.UnixMilli())}
	}
	found, err := log.OffsetsAt(ctx, goals)
	if err != nil {
		return nil, err
	}
	for i, f := range found {
		switch {
		case f.Err != nil:
			return nil, fmt.Errorf("%s/%d: %w", places[i].Topic, places[i].Partition, f.Err)
		case f.There:
			offsets[i] = eventlog.Offset(f.Offset)
		}
	}
	return offsets, nil
}

// within returns the position's offset in a partition. For AtTime it returns the end that readers
// see, which counts if the partition has no event of that time or later.
func (p Position) within(b eventlog.Bounds) (eventlog.Offset, error) {
	switch p.kind {
	case latest, atTime:
		return b.Stable(), nil
	case atOffset:
		at := eventlog.Offset(p.offset)
		if at < b.First || at > b.Next {
			return 0, &eventlog.InvalidError{What: "offset", Value: strconv.FormatInt(p.offset, 10),
				Why: fmt.Sprintf("it must be %d to %d", b.First, b.Next)}
		}
		return at, nil
	}
	return b.First, nil
}
