package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/weir-log/weir/eventlog"
)

// refusalFor is how long Writable repeats a refusal that statfs does not explain, such as that of a
// quota.
const refusalFor = 10 * time.Second

// refusal is why a commit was refused, and when.
type refusal struct {
	err error
	at  time.Time
}

// Writable implements eventlog.Writable: one call of statfs, and on a full disk a query for the
// free pages of the file.
func (s *Store) Writable(ctx context.Context) (error, error) {
	c, err := s.watch.pool.take(ctx)
	if err != nil {
		return nil, err
	}
	defer s.watch.pool.give(c)
	refused, err := s.spaceRefusal(c)
	if refused != nil || err != nil {
		return refused, err
	}
	if last := s.refused.Load(); last != nil && time.Since(last.at) < refusalFor {
		return last.err, nil
	}
	if disk, err := s.disk(filepath.Dir(s.path())); err == nil && s.reserved() < disk.reserve() && disk.free >= s.needs(disk) {
		s.keeper.wake()
	}
	return nil, nil
}

// remember notes the refusal of a commit if the disk was the reason.
func (s *Store) remember(err error) {
	switch {
	case err == nil:
		if s.refused.Load() != nil {
			s.refused.Store(nil)
		}
	case errors.Is(err, eventlog.ErrNoSpace), code(err) == codes.SQLITE_IOERR, code(err) == codes.SQLITE_READONLY:
		s.refused.Store(&refusal{err, time.Now()})
	}
}

// noSpace returns ErrNoSpace for the file, and why.
func (s *Store) noSpace(because error) error {
	err := fmt.Errorf("%w for %s: %w: free disk space, or shorten the topics' retention", eventlog.ErrNoSpace, s.path(), syscall.ENOSPC)
	if because != nil {
		err = fmt.Errorf("%w: %w", err, because)
	}
	return err
}
