package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

const (
	// sweepBytes and sweepBatches bound what one transaction deletes.
	sweepBytes   = 8 << 20
	sweepBatches = 2000

	// sweepPause is the time between two looks for what other processes left to delete.
	sweepPause = 30 * time.Second

	addTrash = "INSERT INTO weir_trash VALUES (?, ?) ON DUPLICATE KEY UPDATE below = greatest(below, VALUES(below))"
)

// Trim implements eventlog.Store. It changes the bounds and notes what to delete; the sweeper
// deletes it in small steps.
func (s *Store) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	if len(trims) == 0 {
		return nil, nil
	}
	ids := make([]any, len(trims))
	for i, t := range trims {
		ids[i] = int64(t.Partition)
	}
	errs, err := change(ctx, s.commits, func(tx *transaction) ([]error, error) {
		var t text
		var now incarnation
		partitions := make(map[eventlog.Partition]*storerow.Partition, len(trims))
		begin(&t, &now, false)
		t.add(func(row *sql.Rows) error {
			id, p, err := scanPartition(row)
			partitions[id] = p
			return err
		}, selectPartition+list(len(ids))+" ORDER BY id FOR UPDATE", ids...) // locked in the order in which commits lock them
		if err := tx.run(&t); err != nil {
			return nil, err
		}
		if err := s.lastIncarnation.check(now); err != nil {
			return nil, err
		}
		changed, errs, err := storerow.Trim(index{tx.run}, partitions, trims)
		if err != nil {
			return nil, err
		}
		var writes text
		for _, id := range changed {
			p := partitions[id]
			writes.add(nil, "UPDATE weir_partition SET first_offset = ?, first_byte = ?, removed = ? WHERE id = ?", int64(p.First), p.FirstByte, p.Removed, int64(id))
			writes.add(nil, addTrash, int64(id), int64(p.First))
		}
		return errs, tx.commit(&writes)
	})
	if err != nil {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), err)
	}
	s.sweeper.wake()
	return errs, nil
}

// sweeper deletes trimmed batches in the background. Any number of processes may do that
// concurrently.
type sweeper struct {
	due chan struct{} // holds one when there is something to delete
}

func (s *sweeper) wake() {
	select {
	case s.due <- struct{}{}:
	default:
	}
}

func (s *Store) sweep(ctx context.Context) {
	for {
		more, err := s.sweepStep(ctx)
		told := errors.Is(err, eventlog.ErrUpgraded) || errors.Is(err, eventlog.ErrRewound) // the log, which polls, tells of these
		if err != nil && !told && ctx.Err() == nil {
			s.logger.Warn("mysql: cannot delete trimmed batches; it is tried again", "store", s.name, "err", err)
		}
		if more && ctx.Err() == nil {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-s.sweeper.due:
		case <-time.After(sweepPause):
		}
	}
}

// sweepStep deletes trimmed batches in one bounded step. more: there may be more to delete.
func (s *Store) sweepStep(ctx context.Context) (more bool, err error) {
	more, err = change(ctx, s.commits, func(tx *transaction) (more bool, err error) {
		var id, from, below int64
		var t text
		var now incarnation
		begin(&t, &now, false)
		t.add(func(row *sql.Rows) error {
			more = true
			return row.Scan(&id, &from, &below)
		}, "SELECT partition_id, coalesce((SELECT below FROM weir_swept s WHERE s.partition_id = t.partition_id), 0), below FROM weir_trash t ORDER BY partition_id LIMIT 1 FOR UPDATE")
		if err := tx.run(&t); err != nil {
			return false, err
		}
		if err := s.lastIncarnation.check(now); err != nil {
			return false, err
		}
		var writes text
		if more {
			to, rest, err := trashed(tx, id, from, below)
			if err != nil {
				return false, err
			}
			if to > from {
				writes.add(nil, "DELETE FROM weir_piece WHERE partition_id = ? AND base_offset >= ? AND base_offset < ?", id, from, to)
				writes.add(nil, "DELETE FROM weir_batch WHERE partition_id = ? AND base_offset >= ? AND base_offset < ?", id, from, to)
				writes.add(nil, "INSERT INTO weir_swept VALUES (?, ?) ON DUPLICATE KEY UPDATE below = VALUES(below)", id, to)
			}
			if !rest {
				writes.add(nil, "DELETE FROM weir_trash WHERE partition_id = ?", id)
			}
			if !rest && below == math.MaxInt64 { // the partition was deleted
				writes.add(nil, "DELETE FROM weir_swept WHERE partition_id = ?", id)
			}
		}
		return more, tx.commit(&writes)
	})
	if err != nil {
		return false, fmt.Errorf("delete what was trimmed: %w", err)
	}
	return more, nil
}

// trashed returns where the last batch to delete in this step ends (from, if there is none), and
// whether more are left. No batch begins below from.
func trashed(tx *transaction, id, from, below int64) (to int64, rest bool, err error) {
	to = from
	var bytes, batches int64
	over := false
	var t text
	t.add(func(row *sql.Rows) error {
		var base, records, size int64
		if err := row.Scan(&base, &records, &size); err != nil || over {
			return err
		}
		switch {
		case base+records > below:
			over = true
		case bytes >= sweepBytes, batches == sweepBatches:
			over, rest = true, true
		default:
			to, bytes, batches = base+records, bytes+size, batches+1
		}
		return nil
	}, "SELECT base_offset, records, size FROM weir_batch WHERE partition_id = ? AND base_offset >= ? AND base_offset < ? ORDER BY base_offset LIMIT ?", id, from, below, sweepBatches+1)
	err = tx.run(&t)
	return to, rest, err
}
