package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// seen is what earlier polls of this process returned. The place of a mark is the number of a poll.
type seen struct {
	mu       sync.Mutex // guards what follows, and is held during a poll so that polls are in order
	sighting storerow.Sightings
}

// Changes implements eventlog.Store with one query. It compares the bounds of partitions with those
// of earlier polls; the time and the order of changes do not matter.
func (s *Store) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
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
	parts, newest := s.versions()
	all, err := retry(ctx, interrupted, func() ([]eventlog.Bounds, error) {
		rows, err := s.readPool.Query(ctx, `SELECT id, first_offset, next_offset, bytes FROM weir.bounds()`+pollIncarnation+pollVersions, parts, newest)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b eventlog.Bounds, err error) {
			err = row.Scan((*int64)(&b.Partition), (*int64)(&b.First), (*int64)(&b.Next), &b.Bytes)
			return b, err
		})
	})
	if err != nil {
		return nil, since, fmt.Errorf("moved since %+v: %w", since, readFailed(s.fits(ctx, err)))
	}
	var now Incarnation
	var newer error
	all = slices.DeleteFunc(all, func(b eventlog.Bounds) bool {
		switch {
		case b.Partition < -1:
			newer = s.layout.Found(parts[-b.Partition-2], int(b.First), int(b.Next))
		case b.Partition < 0:
			now = Incarnation{Server: int64(b.First), Tables: b.Bytes, Epoch: int64(b.Next)}
		}
		return b.Partition < 0
	})
	if newer == nil {
		_ = s.layout.Found("", 0, 0) // a backup from before an upgrade may have been restored
	}
	switch {
	case newer != nil:
		return nil, since, fmt.Errorf("moved since %+v: %w", since, newer)
	case now.Server == 0:
		return nil, since, fmt.Errorf("moved since %+v: %w: the server is a standby; its partitions may lag behind", since, eventlog.ErrUnavailable)
	case since != (eventlog.Mark{}) && since.Incarnation != now.InMark():
		return nil, since, fmt.Errorf("moved since %+v: %w", since, eventlog.ErrRewound)
	}
	s.lastIncarnation.tell(now)
	moved, poll := s.seen.sighting.Update(all, after)
	return moved, eventlog.Mark{Incarnation: now.InMark(), Place: strconv.FormatInt(poll, 10)}, nil
}
