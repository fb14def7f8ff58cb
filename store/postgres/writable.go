package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
)

const (
	// probePause is the wait after a refusal before the server is probed, unless a commit succeeds
	// earlier.
	probePause = 5 * time.Second
	// walPause is the same wait after the WAL had no space. The refusal then ends without a probe.
	walPause = time.Minute
)

// refusal is why the server refused records, and when.
type refusal struct {
	err error
	at  time.Time
	wal bool // there was no space for the WAL, which ends the server's processes: a probe must not cause that again
}

// Writable implements eventlog.Writable. PostgreSQL does not report how full its disk is: so
// Writable costs nothing until a commit is refused, and then one probe in each probePause, until
// records are accepted.
func (s *Store) Writable(ctx context.Context) (error, error) {
	last := s.refused.Load()
	switch {
	case last == nil:
		return nil, nil
	case last.wal && time.Since(last.at) < walPause, time.Since(last.at) < s.opts.probePause:
		return last.err, nil
	case last.wal:
		s.refused.CompareAndSwap(last, nil) // the next commit finds out
		return nil, nil
	}
	err := readFailed(s.probe(ctx))
	switch {
	case err == nil:
		s.refused.CompareAndSwap(last, nil)
		return nil, nil
	case refuses(err):
		s.refused.Store(&refusal{err: err, at: time.Now()})
		return err, nil
	}
	return last.err, nil // the server does not answer: the poll of the log reports that
}

// refuses reports whether the server refuses records: its disk is full, or it is read only.
func refuses(err error) bool { return errors.Is(err, eventlog.ErrNoSpace) || code(err) == "25006" }

// remember notes the result of a commit of records. A server whose WAL has no space reports that,
// too, before it shuts down.
func (s *Store) remember(err error) {
	var reported *pgconn.PgError
	switch {
	case err == nil:
		if s.refused.Load() != nil {
			s.refused.Store(nil)
		}
	case errors.As(err, &reported) && reported.Code == "53100":
		s.refused.Store(&refusal{noSpace(reported), time.Now(), reported.SeverityUnlocalized == "PANIC"})
	case refuses(err):
		s.refused.Store(&refusal{err: err, at: time.Now()})
	}
}

// probe extends a table in the tablespace of the segments, and rolls back. weir.batch has no rows
// of its own.
func (s *Store) probe(ctx context.Context) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	errUndo := errors.New("undo")
	err := pgx.BeginFunc(ctx, s.readPool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			INSERT INTO weir.batch (partition_id, base_offset, byte, max_time, records, size, piece, bytes)
			SELECT -1, 0, 0, -1, 1, 0, piece, convert_to(repeat('x', 8000), 'UTF8')
			FROM generate_series(1, 32) AS piece`)
		if err != nil {
			return err
		}
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// commitSmall commits the entries that need little space, of a flush that the server has no space
// for. The other entries are refused.
func (s *Store) commitSmall(ctx context.Context, entries []eventlog.Entry, full error) ([]eventlog.Outcome, error) {
	outcomes := make([]eventlog.Outcome, len(entries))
	var small []eventlog.Entry
	var owners []int
	for i, e := range entries {
		if bulky(e) {
			outcomes[i].Err = full
		} else {
			small, owners = append(small, e), append(owners, i)
		}
	}
	if len(small) == 0 {
		return outcomes, nil
	}
	done, err := s.commit(ctx, small)
	if err != nil && !errors.Is(err, eventlog.ErrNoSpace) {
		return nil, err
	}
	for k, i := range owners {
		if err != nil {
			outcomes[i].Err = err
		} else {
			outcomes[i] = done[k]
		}
	}
	return outcomes, nil
}

// bulky reports whether an entry has records and may not use the reserve.
func bulky(e eventlog.Entry) bool {
	for _, b := range e.Batches {
		if b.Records > 0 && !e.UsesReserve {
			return true
		}
	}
	return false
}

// noSpace returns ErrNoSpace for the server's disk_full.
func noSpace(err error) error {
	return fmt.Errorf("%w on the server's disk: free some space there, or shorten the topics' retention: %w", eventlog.ErrNoSpace, err)
}
