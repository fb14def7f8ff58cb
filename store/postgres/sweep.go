package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
)

const (
	// sweepPause is the least time between two sweeps.
	sweepPause = time.Second
	// sweepAgain is the wait before a sweep that could not finish is retried.
	sweepAgain = 10 * time.Second
)

// trimEach locks the partitions in the order in which commits lock them. HAVING is evaluated once,
// after all are locked.
const trimEach = `SELECT array_agg(moved) FROM unnest($4::bigint[], $5::bigint[]) AS t(id, before) CROSS JOIN LATERAL weir.trim(t.id, t.before) AS moved
	HAVING weir.still_after($1, $2, $3)`

// Trim implements eventlog.Store with one statement. It raises First immediately; disk space is
// freed once no batch of a segment is needed.
func (s *Store) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	order := make([]int, len(trims)) // indexes of trims
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(trims[a].Partition, trims[b].Partition) })
	ids, before := make([]int64, len(trims)), make([]int64, len(trims))
	for i, at := range order {
		ids[i], before[i] = int64(trims[at].Partition), int64(trims[at].Before)
	}
	args := append(s.lastIncarnation.now().args(), ids, before)
	moved, err := retry(ctx, rolledBack, func() (moved []*bool, err error) {
		conn, err := s.reader(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Release()
		ctx, cancel := s.detached(ctx)
		defer cancel()
		err = conn.QueryRow(ctx, trimEach, args...).Scan(&moved)
		return moved, err
	})
	if err != nil {
		return nil, fmt.Errorf("trim %d partitions: %w", len(trims), writeFailed(s.fits(ctx, err)))
	}
	errs := make([]error, len(trims))
	for i, at := range order {
		if moved[i] == nil {
			errs[at] = fmt.Errorf("no batch of partition %d has the offset %d: the tables are damaged", trims[at].Partition, trims[at].Before)
		}
	}
	if slices.ContainsFunc(moved, func(m *bool) bool { return m != nil && *m }) {
		s.news.tell()
		s.sweeper.wake()
	}
	return errs, nil
}

// sweeper decides when to check for segments to seal and to drop.
type sweeper struct {
	due     chan struct{} // holds one
	written atomic.Int64  // bytes committed since the last wake
}

func (w *sweeper) wake() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// wrote counts the bytes that this process commits.
func (w *sweeper) wrote(bytes, full int64) {
	if w.written.Add(bytes) >= full/8 {
		w.written.Store(0)
		w.wake()
	}
}

// sweep seals, drops and empties segments whenever that is due, until ctx ends. An idle process
// sends no query.
func (s *Store) sweep(ctx context.Context) {
	s.sweeper.wake() // an earlier process may have left work
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.sweeper.due:
		case <-again:
		}
		again = nil
		done := false
		err := recovered.Do(func() (err error) { done, err = s.sweepOnce(s.background); return err })
		if err != nil && !errors.Is(readFailed(err), eventlog.ErrUnavailable) {
			s.opts.Logger.Warn("retention could not free disk space; trying again later", "every", sweepAgain, "err", err)
		}
		if err != nil || !done {
			again = time.After(sweepAgain)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.opts.sweepPause):
		}
	}
}

// sweepOnce makes one sweep. It returns true if all space that can be freed was freed.
func (s *Store) sweepOnce(ctx context.Context) (done bool, err error) {
	if err := s.layout.Usable(); err != nil {
		return false, err
	}
	if err := s.roll(ctx, false); err != nil {
		return false, err
	}
	done = true
	for s.closing.Err() == nil {
		segments, err := s.fill(ctx)
		if err != nil {
			return false, err
		}
		victim, found := choose(segments, s.opts.SegmentBytes)
		for _, segment := range segments {
			if segment.runs > 0 {
				continue
			}
			dropped, err := s.drop(ctx, segment.number)
			if err != nil {
				return false, err
			}
			done = done && dropped
		}
		if !found {
			return done, nil
		}
		if moved, err := s.empty(ctx, victim); err != nil || !moved {
			return false, err
		}
	}
	return false, nil
}

// segment is a row of weir.fill.
type segment struct {
	number          int
	payload, wanted int64
	runs            int64
}

func (s *Store) fill(ctx context.Context) ([]segment, error) {
	rows, err := s.readPool.Query(ctx, `SELECT number, payload, wanted, runs FROM weir.fill ORDER BY number`)
	if err != nil {
		return nil, fmt.Errorf("find segments to drop: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (seg segment, err error) {
		err = row.Scan(&seg.number, &seg.payload, &seg.wanted, &seg.runs)
		return seg, err
	})
}

// choose returns the segment to empty, if any. Without it, a segment that topics with long and with
// short retention share could not be dropped while it has a record with long retention. Sealed
// segments may hold 7/4 of the needed bytes, plus 1/16 of a segment; beyond that the segment with
// the lowest needed share is emptied, if that share is below 3/5. So moving copies less than 3/5 of
// what it frees, and moved batches, which are together in segments of survivors, are seldom moved
// again.
func choose(segments []segment, full int64) (victim int, found bool) {
	var payload, wanted int64
	least := 0.6
	for _, seg := range segments {
		if seg.runs == 0 {
			continue // nothing in it is needed: it is dropped
		}
		payload += seg.payload
		wanted += seg.wanted
		if share := float64(seg.wanted) / float64(max(seg.payload, 1)); share < least {
			least, victim, found = share, seg.number, true
		}
	}
	return victim, found && payload > wanted*7/4+full/16
}

// empty moves the needed batches out of a segment. It returns false if another process does so
// already.
func (s *Store) empty(ctx context.Context, victim int) (moved bool, err error) {
	if _, err = s.readPool.Exec(ctx, `SELECT weir.settle($1)`, victim); err != nil {
		return false, fmt.Errorf("empty segment %d: %w", victim, err)
	}
	for s.closing.Err() == nil {
		if err := s.roll(ctx, true); err != nil {
			return moved, err
		}
		more, err := retry(ctx, rolledBack, func() (bool, error) { return s.move(ctx, victim) })
		if err != nil {
			return moved, fmt.Errorf("empty segment %d: %w", victim, err)
		}
		if !more {
			return moved, nil
		}
		moved = true
	}
	return moved, nil
}

// move moves one run. It may take longer than the statement_timeout of the pool: a run may be as
// large as a segment.
func (s *Store) move(ctx context.Context, victim int) (more bool, err error) {
	tx, err := s.readPool.Begin(ctx)
	if err != nil {
		return false, notSent(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, `SET LOCAL statement_timeout = 0`); err != nil {
		return false, err
	}
	if err := tx.QueryRow(ctx, `SELECT weir.move_run($1)`, victim).Scan(&more); err != nil {
		return false, err
	}
	return more, tx.Commit(ctx)
}

// roll seals the segment that is being written, if it is full, and opens the next. With survivors,
// it is the segment of batches that were moved or replaced, instead of the one that takes commits.
// If a lock is not free, roll leaves all to the next sweep: a segment may grow beyond its size, but
// commits must not wait.
func (s *Store) roll(ctx context.Context, survivors bool) error {
	full := s.opts.SegmentBytes
	if survivors {
		full /= 4 // smaller, because a segment can only be emptied once it is sealed
	}
	_, err := s.readPool.Exec(ctx, `SELECT weir.roll($1, $2, $3)`, survivors, full, s.opts.SegmentAge)
	if err != nil && !rolledBack(err) {
		return fmt.Errorf("open a new segment: %w", err)
	}
	return nil
}

// drop drops a segment. It returns false if some session uses the table.
func (s *Store) drop(ctx context.Context, number int) (bool, error) {
	var dropped bool
	err := s.readPool.QueryRow(ctx, `SELECT weir.drop_segment($1)`, number).Scan(&dropped)
	if err != nil && !rolledBack(err) {
		return false, fmt.Errorf("drop segment %d: %w", number, err)
	}
	return dropped, nil
}
