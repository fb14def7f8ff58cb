package sqlite

import (
	"context"
	"database/sql/driver"
	"fmt"
	"math"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

const (
	// sweepBytes and sweepBatches bound what one transaction deletes, and so how long producers
	// wait for it.
	sweepBytes   = 8 << 20
	sweepBatches = 2000
)

// Trim implements eventlog.Store. It changes the bounds and records what to delete; the keeper
// deletes it in small steps.
func (s *Store) Trim(ctx context.Context, trims []eventlog.Trim) (errs []error, err error) {
	err = s.change(ctx, func(w *conn) (err error) {
		if err := s.unchanged(w); err != nil {
			return err
		}
		errs, err = w.trim(trims)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), err)
	}
	s.keeper.wake()
	return errs, nil
}

func (c *conn) trim(trims []eventlog.Trim) ([]error, error) {
	partitions := make(map[eventlog.Partition]*storerow.Partition, len(trims))
	for _, t := range trims {
		p, err := c.partition(t.Partition)
		if err != nil {
			return nil, err
		}
		if p != nil {
			partitions[t.Partition] = &p.Partition
		}
	}
	changed, errs, err := storerow.Trim(index{c}, partitions, trims)
	if err != nil {
		return nil, err
	}
	for _, id := range changed {
		p := partition{Partition: *partitions[id]}
		if err := p.put(c, id); err != nil {
			return nil, err
		}
		if err := c.exec(sqlAddTrash, int64(id), int64(p.First)); err != nil {
			return nil, err
		}
	}
	return errs, nil
}

// forget deletes a partition. The keeper deletes its batches in small steps.
func (c *conn) forget(id eventlog.Partition) error {
	if err := c.exec(sqlDeletePartition, int64(id)); err != nil {
		return err
	}
	return c.exec(sqlAddTrash, int64(id), int64(math.MaxInt64))
}

// sweep deletes trimmed batches in one bounded step. more: there may be more to delete.
func (s *Store) sweep(ctx context.Context) (more bool, err error) {
	err = s.change(ctx, func(w *conn) error {
		if err := s.unchanged(w); err != nil {
			return err
		}
		trash, err := w.integers(sqlNextTrash)
		if err != nil || trash == nil {
			return err
		}
		more = true
		id, below := trash[0], trash[1]
		last, rest, err := w.trashed(id, below)
		if err != nil {
			return err
		}
		if last >= 0 {
			if err := w.exec(sqlDeleteBodies, id, last); err != nil {
				return err
			}
			if err := w.exec(sqlDeleteBatches, id, last); err != nil {
				return err
			}
		}
		if rest {
			return nil
		}
		return w.exec(sqlDeleteTrash, id, below)
	})
	if err != nil {
		return false, fmt.Errorf("delete what was trimmed: %w", err)
	}
	return more, nil
}

// trashed returns the base offset of the last batch to delete in this step, -1 for none, and
// whether more are left.
func (c *conn) trashed(id, below int64) (last int64, rest bool, err error) {
	last = -1
	var bytes, batches int64
	err = c.query(sqlTrashed, func(row []driver.Value) error {
		base, records, size := row[0].(int64), row[1].(int64), row[2].(int64)
		if base+records > below {
			return errStop
		}
		if bytes >= sweepBytes || batches == sweepBatches {
			rest = true
			return errStop
		}
		last, bytes, batches = base, bytes+size, batches+1
		return nil
	}, id, below)
	return last, rest, err
}
