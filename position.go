package weir

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
	// Latest is after the newest event: only events published from now on follow.
	Latest = Position{kind: latest}
)

// AtOffset is the event with that offset.
func AtOffset(offset int64) Position { return Position{kind: atOffset, offset: offset} }

// AtTime is the first event that was published at that time or later; if there is none, it is
// Latest.
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

// place is a partition's name and its number in the store.
type place struct {
	TopicPartition
	id eventlog.Partition
}

// resolve finds a position's offsets in some partitions: one store call, and for AtTime two more
// for each thousand partitions, or for each 4 MiB of batches.
func (l *Log) resolve(ctx context.Context, to Position, places []place) ([]eventlog.Offset, error) {
	if len(places) == 0 {
		return nil, nil
	}
	ids := make([]eventlog.Partition, len(places))
	for i, p := range places {
		ids[i] = p.id
	}
	bounds, err := l.log.Bounds(ctx, ids...)
	if err != nil {
		return nil, err
	}
	return l.resolveIn(ctx, to, places, bounds)
}

// resolveIn is resolve for partitions whose bounds are known.
func (l *Log) resolveIn(ctx context.Context, to Position, places []place, bounds []eventlog.Slice) ([]eventlog.Offset, error) {
	offsets := make([]eventlog.Offset, len(places))
	for i, s := range bounds {
		if s.Err == nil {
			offsets[i], s.Err = to.within(s.Bounds)
		}
		if s.Err != nil {
			return nil, fmt.Errorf("%s/%d: %w", places[i].Topic, places[i].Partition, s.Err)
		}
	}
	if to.kind != atTime {
		return offsets, nil
	}
	goals := make([]eventlog.Goal, len(places))
	for i, p := range places {
		goals[i] = eventlog.Goal{Partition: p.id, At: eventlog.Timestamp(to.time.UnixMilli())}
	}
	found, err := l.log.OffsetsAt(ctx, goals)
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

// within returns the position's offset in a partition; for AtTime it is the end, where the
// partition has no such event.
func (p Position) within(b eventlog.Bounds) (eventlog.Offset, error) {
	switch p.kind {
	case latest, atTime:
		return b.Next, nil
	case atOffset:
		at := eventlog.Offset(p.offset)
		if at < b.First || at > b.Next {
			return 0, &InvalidError{What: "offset", Value: strconv.FormatInt(p.offset, 10),
				Why: fmt.Sprintf("it must be %d to %d", b.First, b.Next)}
		}
		return at, nil
	}
	return b.First, nil
}
