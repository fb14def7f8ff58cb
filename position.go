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

// AtTime is the first event that was published at that time or later; if there is none, it is Latest.
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

// resolve finds a position's offsets in some partitions: one store call, and for AtTime a few for each partition.
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
	offsets := make([]eventlog.Offset, len(places))
	for i, s := range bounds {
		if s.Err == nil {
			offsets[i], s.Err = l.find(ctx, to, s.Bounds)
		}
		if s.Err != nil {
			return nil, fmt.Errorf("%s/%d: %w", places[i].Topic, places[i].Partition, s.Err)
		}
	}
	return offsets, nil
}

func (l *Log) find(ctx context.Context, to Position, within eventlog.Bounds) (eventlog.Offset, error) {
	switch to.kind {
	case latest:
		return within.Next, nil
	case atOffset:
		at := eventlog.Offset(to.offset)
		if at < within.First || at > within.Next {
			return 0, &InvalidError{What: "offset", Value: strconv.FormatInt(to.offset, 10),
				Why: fmt.Sprintf("it must be %d to %d", within.First, within.Next)}
		}
		return at, nil
	case atTime:
		return l.findTime(ctx, to.time.UnixMilli(), within)
	}
	return within.First, nil
}

// findTime finds the first event that is not older than ms.
func (l *Log) findTime(ctx context.Context, ms int64, within eventlog.Bounds) (eventlog.Offset, error) {
	found, there, err := l.log.OffsetAt(ctx, within.Partition, eventlog.Timestamp(ms))
	if err != nil || !there {
		return within.Next, err
	}
	return eventlog.Offset(found.Offset), nil
}
