package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"sync"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// seen is what earlier polls of this process returned. The place of a mark is the number of a poll.
type seen struct {
	mu       sync.Mutex // guards what follows, and is held during a poll so that polls are in order
	sighting storerow.Sightings
}

const selectBounds = "SELECT id, first_offset, next_offset, next_byte - first_byte - removed FROM weir_partition"

// Changes implements eventlog.Store with one trip. It compares the bounds of partitions with those
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
	if after == 0 {
		s.durable.forget()
	}
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	var now incarnation
	all, err := retry(ctx, interrupted, func() (all []eventlog.Bounds, err error) {
		if now, all, err = s.poll(ctx); err == nil && now.life == 0 && !now.readOnly {
			if err = s.numberLife(ctx); err == nil {
				now, all, err = s.poll(ctx)
			}
		}
		return all, err
	})
	switch {
	case err != nil:
		return nil, since, fmt.Errorf("moved since %+v: %w", since, readFailed(err))
	case now.readOnly:
		return nil, since, fmt.Errorf("moved since %+v: %w, such as a replica; its partitions may lag behind", since, eventlog.ErrNotWritable)
	case since != (eventlog.Mark{}) && since.Incarnation != now.inMark():
		return nil, since, fmt.Errorf("moved since %+v: %w", since, eventlog.ErrRewound)
	}
	s.lastIncarnation.tell(now)
	s.durable.keep(all)
	moved, poll := s.seen.sighting.Update(all, after)
	return moved, eventlog.Mark{Incarnation: now.inMark(), Place: strconv.FormatInt(poll, 10)}, nil
}

func (s *Store) poll(ctx context.Context) (now incarnation, all []eventlog.Bounds, err error) {
	err = s.view(ctx, func(v *view) error {
		all = nil
		var t text
		t.add(func(row *sql.Rows) error {
			var b eventlog.Bounds
			err := row.Scan(&b.Partition, &b.First, &b.Next, &b.Bytes)
			all = append(all, b)
			return err
		}, selectBounds)
		t.add(now.scan, selectIncarnation)
		err := v.end(&t)
		if v.saw.bounds = all; now.readOnly {
			v.saw = sight{} // Changes returns nothing of it
		}
		return err
	})
	return now, all, err
}
