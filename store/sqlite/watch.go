package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"

	"github.com/weir-log/weir/eventlog"
)

// watch knows which partitions changed, and when, by a clock of its own: a tick is a poll of the
// file that found a change. Polling costs nothing while PRAGMA data_version does not change, and
// commits write nothing for it.
type watch struct {
	pool    *pool // has one conn; its holder owns the other fields
	version int64 // PRAGMA data_version at the last poll
	tick    int64
	seen    map[eventlog.Partition]sighting
}

type sighting struct {
	bounds       eventlog.Bounds
	changed, had int64 // the last tick that found the partition changed, and the last tick that found the partition
}

// Changes implements eventlog.Store. The place of a mark is a tick.
func (s *Store) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	after := int64(-1)
	if since != (eventlog.Mark{}) {
		var err error
		if after, err = strconv.ParseInt(since.Place, 10, 64); err != nil {
			return nil, since, fmt.Errorf("moved since %+v: this is not a mark of this store", since)
		}
	}
	replaced, err := s.replaced()
	if err == nil && replaced && since != (eventlog.Mark{}) {
		err = eventlog.ErrRewound
	} else if err == nil && replaced {
		err = s.reopen(ctx)
	}
	if err != nil {
		return nil, since, fmt.Errorf("moved: %w", s.explain(err))
	}
	conn, err := s.watch.pool.take(ctx)
	if err != nil {
		return nil, since, fmt.Errorf("moved: %w", err)
	}
	defer s.watch.pool.give(conn)
	now, err := s.poll(conn)
	if err != nil {
		return nil, since, fmt.Errorf("moved: %w", s.explain(err))
	}
	if since != (eventlog.Mark{}) && since.Incarnation != now {
		return nil, since, fmt.Errorf("moved: %w", eventlog.ErrRewound)
	}
	s.identity.mu.Lock()
	s.identity.told = now
	s.identity.mu.Unlock()
	var moved []eventlog.Bounds
	if after < s.watch.tick {
		for _, seen := range s.watch.seen {
			if seen.changed > after {
				moved = append(moved, seen.bounds)
			}
		}
	}
	return moved, eventlog.Mark{Incarnation: now, Place: strconv.FormatInt(s.watch.tick, 10)}, nil
}

// poll updates seen, and returns the incarnation in which it was read.
func (s *Store) poll(c *conn) (eventlog.Incarnation, error) {
	if err := c.exec("BEGIN"); err != nil {
		return eventlog.Incarnation{}, err
	}
	defer c.rollback()
	if err := s.watch.poll(c); err != nil {
		return eventlog.Incarnation{}, err
	}
	if err := s.upgraded(c); err != nil {
		return eventlog.Incarnation{}, err
	}
	return s.incarnation(c)
}

// poll updates seen if the file has changed since the last poll.
func (w *watch) poll(c *conn) error {
	version, err := c.integer("PRAGMA data_version")
	if err != nil || version == w.version && w.seen != nil {
		return err
	}
	if w.seen == nil {
		w.seen = map[eventlog.Partition]sighting{}
	}
	w.tick++
	err = c.query(sqlPartitions, func(row []driver.Value) error {
		id := eventlog.Partition(row[0].(int64))
		bounds := eventlog.Bounds{Partition: id, First: eventlog.Offset(row[1].(int64)), Next: eventlog.Offset(row[2].(int64)), Bytes: row[3].(int64)}
		seen, known := w.seen[id]
		if !known || seen.bounds != bounds {
			seen = sighting{bounds: bounds, changed: w.tick}
		}
		seen.had = w.tick
		w.seen[id] = seen
		return nil
	})
	if err != nil {
		return err
	}
	for id, seen := range w.seen {
		if seen.had != w.tick {
			delete(w.seen, id)
		}
	}
	w.version = version
	return nil
}
