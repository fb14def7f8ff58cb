package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// A backup is restored in two ways. Another file replaces ours: our connections continue with the
// old file, which has no name any more. Or SQLite itself copies a backup into our file (.restore,
// sqlite3_backup): that increments the schema version, as VACUUM does. Overwriting the bytes of the
// file under our connections mixes old pages with new ones; that is damage, and is not detected
// here.

// identity is what distinguishes incarnations.
type identity struct {
	mu   sync.Mutex // guards what follows
	file os.FileInfo
	wal  os.FileInfo          // the WAL of that file; nil: there was none
	told eventlog.Incarnation // what Changes returned last; zero before the first call
}

// opened notes which file the connections have open.
func (s *Store) opened() error {
	file, err := os.Stat(s.path())
	if err != nil {
		return err
	}
	wal, err := os.Stat(s.path() + "-wal")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	s.identity.file, s.identity.wal = file, wal
	return nil
}

// replaced reports whether the path that Open was given leads to another file than our connections
// have open. It fails while there is no file.
func (s *Store) replaced() (bool, error) {
	now, err := os.Stat(s.name)
	if err != nil {
		return false, fmt.Errorf("%w: %s does not exist: %w", eventlog.ErrUnavailable, s.name, err)
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	return !os.SameFile(now, s.identity.file), nil
}

// incarnation reads the present incarnation. Call it in a transaction.
func (s *Store) incarnation(c *conn) (eventlog.Incarnation, error) {
	schema, err := c.integer("PRAGMA schema_version")
	if err != nil {
		return eventlog.Incarnation{}, err
	}
	epoch, err := c.integers(sqlVersion, eventlog.EpochKey)
	if err != nil {
		return eventlog.Incarnation{}, err
	}
	s.identity.mu.Lock()
	defer s.identity.mu.Unlock()
	in := eventlog.Incarnation{Store: fmt.Sprintf("file %d, schema %d", inode(s.identity.file), schema)}
	if len(epoch) > 0 {
		in.Epoch = eventlog.Version(epoch[0])
	}
	return in, nil
}

// unchanged returns ErrUpgraded if a newer weir has upgraded the tables, and ErrRewound if the
// store is not in the incarnation that Changes returned last. Call it in a transaction.
func (s *Store) unchanged(c *conn) error {
	if err := s.layout.Usable(); err != nil {
		return err
	}
	s.identity.mu.Lock()
	told := s.identity.told
	s.identity.mu.Unlock()
	if told == (eventlog.Incarnation{}) {
		return nil
	}
	if replaced, err := s.replaced(); err != nil {
		return err
	} else if replaced {
		return eventlog.ErrRewound
	}
	now, err := s.incarnation(c)
	if err == nil && now != told { // an upgrade changes the schema, and with it the incarnation
		if err = s.upgraded(c); err == nil {
			err = eventlog.ErrRewound
		}
	}
	return err
}

// reopen connects to the file that replaced ours, and closes the old connections: SQLite sees that
// their file was moved, and does not touch the WAL of the new file (pagerDatabaseIsUnmoved in
// pager.c).
func (s *Store) reopen(ctx context.Context) error {
	s.reopening.Lock()
	defer s.reopening.Unlock()
	select {
	case <-s.closed:
		return eventlog.ErrClosed
	default:
	}
	name, file, err := resolve(s.name) // a link may lead elsewhere now
	if err != nil {
		return err
	}
	s.identity.mu.Lock()
	old := s.identity.wal
	s.identity.mu.Unlock()
	if wal, err := os.Stat(file + "-wal"); err == nil && old != nil && os.SameFile(wal, old) {
		// It belongs to the old file, and SQLite would take its pages for pages of the new file.
		if err := errors.Join(os.Remove(file+"-wal"), os.Remove(file+"-shm")); err != nil {
			return fmt.Errorf("remove the WAL of the file that was replaced: %w", err)
		}
	}
	next := &Store{name: name, log: s.log, closed: make(chan struct{}), disk: s.disk, noUpgrade: s.noUpgrade}
	next.writer, next.readers, next.watch.pool = newPool(next.closed, 1), newPool(next.closed, readersMax), newPool(next.closed, 1)
	next.file.Store(&file)
	next.keeper.store, next.keeper.wait = next, s.keeper.wait
	if err := next.open(ctx); err != nil {
		return errors.Join(err, next.keeper.stop(), next.writer.shut(), next.readers.shut(), next.watch.pool.shut())
	}
	// Nothing below fails. The keeper may be waiting for the writer, so it stops first; then wait
	// for the callers that hold a connection.
	s.keeper.pause()
	var errs []error
	s.writer.drain(func(c *conn) { errs = append(errs, c.close()) })
	errs = append(errs, s.keeper.stop()) // after the last commit, which may use its connection
	s.keeper.conn, s.keeper.page = next.keeper.conn, next.keeper.page
	s.keeper.length.Store(0) // the next commit reads the length of the new WAL
	s.keeper.due.Store(s.keeper.step)
	for _, p := range []*pool{s.readers, s.watch.pool} {
		p.drain(func(c *conn) { errs = append(errs, c.close()) })
	}
	s.watch.seen = nil
	s.identity.mu.Lock()
	s.file.Store(&file)
	s.identity.file, s.identity.wal = next.identity.file, next.identity.wal
	s.identity.mu.Unlock()
	next.readers.drain(s.readers.give)
	next.watch.pool.drain(s.watch.pool.give)
	next.writer.drain(s.writer.give)
	s.keeper.start()
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("closing the file that was replaced", "path", s.path(), "err", err)
	}
	s.log.Warn("the file of the SQLite store was replaced by another file: continuing with the new one", "path", s.path())
	return nil
}
