package sqlite

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/weir-log/weir/eventlog"
)

// explain classifies an error before COMMIT, or of a read: the change certainly did not happen. It
// adds what to do.
func (s *Store) explain(err error) error {
	if c := code(err); (c == codes.SQLITE_IOERR || c == codes.SQLITE_CANTOPEN) && s.full() {
		return s.noSpace(err) // SQLite reports a full disk as SQLITE_FULL only for some of its files
	}
	switch code(err) {
	case 0:
		return err
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED:
		return fmt.Errorf("%w: another process is using %s: %w", eventlog.ErrUnavailable, s.path(), err)
	case codes.SQLITE_FULL:
		return s.noSpace(err)
	case codes.SQLITE_READONLY, codes.SQLITE_CANTOPEN, codes.SQLITE_PERM:
		return fmt.Errorf("%w: %s cannot be written: check the owner and mode of the file and its directory: %w", eventlog.ErrUnavailable, s.path(), err)
	case codes.SQLITE_CORRUPT, codes.SQLITE_NOTADB:
		return fmt.Errorf("%s is damaged, or is not a SQLite file: run weir doctor, keep a copy of the file, restore a backup: %w", s.path(), err)
	case codes.SQLITE_IOERR, codes.SQLITE_NOMEM, codes.SQLITE_INTERRUPT:
		return fmt.Errorf("%w: %s cannot be read or written: the disk fails, or a quota or a limit for file sizes is reached: %w", eventlog.ErrUnavailable, s.path(), err)
	}
	return err
}

// explainCommit classifies an error of COMMIT itself. A few are certain refusals. After any other,
// such as a failed fsync, the change may be on disk after a crash.
func (s *Store) explainCommit(err error) error {
	switch code(err) {
	case codes.SQLITE_BUSY, codes.SQLITE_LOCKED, codes.SQLITE_FULL, codes.SQLITE_READONLY:
		return s.explain(err)
	}
	return fmt.Errorf("%w: %s: %w", eventlog.ErrUnsure, s.path(), err)
}

// fullAtOpen reports whether there may have been no space for the other files of SQLite.
func fullAtOpen(err error) bool {
	switch code(err) {
	case codes.SQLITE_FULL, codes.SQLITE_CANTOPEN, codes.SQLITE_IOERR:
		return true
	}
	return false
}

// code returns SQLite's primary result code, or 0 for an error that is not SQLite's.
func code(err error) int {
	if e, is := errors.AsType[*sqlite.Error](err); is {
		return e.Code() & 0xff
	}
	return 0
}
