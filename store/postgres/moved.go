package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
)

// seen is what earlier polls of this process returned. The place of a mark is the number of a poll.
type seen struct {
	mu         sync.Mutex // guards what follows, and is held during a poll so that polls are in order
	poll       int64
	partitions map[eventlog.Partition]sight
}

type sight struct {
	bounds eventlog.Bounds
	poll   int64 // the last poll that found the partition changed
}

// Moved implements eventlog.Store with one query. It compares the bounds of partitions with those of earlier polls; the
// time and the order of changes do not matter.
func (s *Store) Moved(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	after := int64(0)
	if since != (eventlog.Mark{}) {
		var err error
		if after, err = strconv.ParseInt(since.Place, 10, 64); err != nil {
			return nil, since, fmt.Errorf("moved since %+v: this is not a mark of this store", since)
		}
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	all, err := retry(ctx, interrupted, func() ([]eventlog.Bounds, error) {
		rows, err := s.readPool.Query(ctx, `SELECT id, first_offset, next_offset, bytes FROM weir.bounds()`+pollIncarnation)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b eventlog.Bounds, err error) {
			err = row.Scan((*int64)(&b.Partition), (*int64)(&b.First), (*int64)(&b.Next), &b.Bytes)
			return b, err
		})
	})
	if err != nil {
		return nil, since, fmt.Errorf("moved since %+v: %w", since, readFailed(err))
	}
	var now Incarnation
	all = slices.DeleteFunc(all, func(b eventlog.Bounds) bool {
		if b.Partition < 0 {
			now = Incarnation{Server: int64(b.First), Tables: b.Bytes, Epoch: int64(b.Next)}
		}
		return b.Partition < 0
	})
	switch {
	case now.Server == 0:
		return nil, since, fmt.Errorf("moved since %+v: %w: the server is a standby; its partitions may lag behind", since, eventlog.ErrUnavailable)
	case since != (eventlog.Mark{}) && since.Incarnation != now.InMark():
		return nil, since, fmt.Errorf("moved since %+v: %w", since, eventlog.ErrRewound)
	}
	s.lastIncarnation.tell(now)
	return s.seen.update(all, after), eventlog.Mark{Incarnation: now.InMark(), Place: strconv.FormatInt(s.seen.poll, 10)}, nil
}

// update stores the result of a poll and returns what changed after an earlier one. A deleted partition is not in all,
// and so dropped.
func (s *seen) update(all []eventlog.Bounds, after int64) []eventlog.Bounds {
	s.poll++
	now := make(map[eventlog.Partition]sight, len(all))
	var moved []eventlog.Bounds
	for _, bounds := range all {
		at, known := s.partitions[bounds.Partition]
		if !known || at.bounds != bounds {
			at = sight{bounds, s.poll}
		}
		now[bounds.Partition] = at
		if at.poll > after {
			moved = append(moved, bounds)
		}
	}
	s.partitions = now
	return moved
}
