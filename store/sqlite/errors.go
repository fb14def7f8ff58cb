package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/weir-log/weir/eventlog"
)

// explain sorts what went wrong before COMMIT, or with no need of one: it certainly did not happen. It says what can be done.
func (s *Store) explain(err error) error {
	switch code(err) {
	case 0:
		return err
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("%w: another process is using %s: %w", eventlog.ErrUnavailable, s.path, err)
	case codes.SQLITE_FULL:
		return fmt.Errorf("%w: no space is left for %s: free some, or shorten the topics' retention: %w", eventlog.ErrUnavailable, s.path, err)
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_PERM:
		return fmt.Errorf("%w: %s cannot be written: check its owner, its mode and those of its directory: %w", eventlog.ErrUnavailable, s.path, err)
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return fmt.Errorf("%s is damaged, or not a SQLite file: run weir doctor, keep a copy, restore a backup: %w", s.path, err)
	case codes.SQLITE_IOERR, codes.SQLITE_NOMEM, codes.SQLITE_INTERRUPT:
		return fmt.Errorf("%w: %s: %w", eventlog.ErrUnavailable, s.path, err)
	}
	return err
}

// explainCommit sorts what COMMIT itself said. The few refusals are certain. After anything else, such as a failing
// fsync, the change may be found on disk after a crash.
func (s *Store) explainCommit(err error) error {
	switch code(err) {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_FULL, codes.SQLITE_READONLY:
		return s.explain(err)
	}
	return fmt.Errorf("%w: %s: %w", eventlog.ErrUnsure, s.path, err)
}

// code returns SQLite's primary result code, or 0 for an error that is not SQLite's.
func code(err error) int {
	if e, is := errors.AsType[*sqlite.Error](err); is {
		return e.Code() & 0xff
	}
	return 0
}
