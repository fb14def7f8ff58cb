package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// A backup comes back in two ways. Another file takes the place of ours: our connections go on with the old one, which has no name any more.
// Or SQLite itself copies a backup into our file (.restore, sqlite3_backup): then it counts up the schema's version, as does VACUUM.
// Whoever overwrites the bytes of the file under our connections mixes old pages with new ones; that is damage, and nothing here finds it.

// life is what tells one incarnation from another.
type life struct {
	mu   sync.Mutex // guards all below
	file os.FileInfo
	wal  os.FileInfo          // nil where there was none yet
	told eventlog.Incarnation // the zero one before Moved was asked
}

// opened notes which file the connections have.
func (s *Store) opened() error {
	file, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	wal, err := os.Stat(s.path + "-wal")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	s.life.file, s.life.wal = file, wal
	return nil
}

// replaced tells whether the path names another file than our connections have. While it names none, nothing can be done.
func (s *Store) replaced() (bool, error) {
	now, err := os.Stat(s.path)
	if err != nil {
		return false, fmt.Errorf("%w: %s is not there: %w", eventlog.ErrUnavailable, s.path, err)
	}
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	return !os.SameFile(now, s.life.file), nil
}

// incarnation reads the present one. It belongs in a transaction.
func (s *Store) incarnation(c *conn) (eventlog.Incarnation, error) {
	schema, err := c.integer("PRAGMA schema_version")
	if err != nil {
		return eventlog.Incarnation{}, err
	}
	epoch, err := c.integers(sqlVersion, eventlog.EpochKey)
	if err != nil {
		return eventlog.Incarnation{}, err
	}
	s.life.mu.Lock()
	defer s.life.mu.Unlock()
	in := eventlog.Incarnation{Store: fmt.Sprintf("file %d, schema %d", inode(s.life.file), schema)}
	if len(epoch) > 0 {
		in.Epoch = eventlog.Version(epoch[0])
	}
	return in, nil
}

// unchanged refuses a change when the store is not in the incarnation that Moved told last.
func (s *Store) unchanged(w *conn) error {
	s.life.mu.Lock()
	told := s.life.told
	s.life.mu.Unlock()
	if told == (eventlog.Incarnation{}) {
		return nil
	}
	if replaced, err := s.replaced(); err != nil {
		return err
	} else if replaced {
		return eventlog.ErrRewound
	}
	now, err := s.incarnation(w)
	if err == nil && now != told {
		err = eventlog.ErrRewound
	}
	return err
}

// reopen gives the store connections to the file that has taken the place of ours. The old ones are closed: SQLite sees that their file has moved,
// and leaves the new file's WAL alone (pagerDatabaseIsUnmoved in pager.c).
func (s *Store) reopen(ctx context.Context) error {
	s.reopening.Lock()
	defer s.reopening.Unlock()
	select {
	case <-s.closed:
		return eventlog.ErrClosed
	default:
	}
	s.life.mu.Lock()
	old := s.life.wal
	s.life.mu.Unlock()
	if wal, err := os.Stat(s.path + "-wal"); err == nil && old != nil && os.SameFile(wal, old) {
		// It was left beside the new file, and SQLite would take its pages for the new file's.
		if err := errors.Join(os.Remove(s.path+"-wal"), os.Remove(s.path+"-shm")); err != nil {
			return fmt.Errorf("remove the WAL of the file that was replaced: %w", err)
		}
	}
	next := &Store{path: s.path, log: s.log, closed: make(chan struct{}), disk: s.disk}
	next.writer, next.readers, next.watch.pool = newPool(next.closed, 1), newPool(next.closed, readersMax), newPool(next.closed, 1)
	next.keeper.store, next.keeper.wait = s, s.keeper.wait
	if err := next.open(ctx); err != nil {
		return errors.Join(err, next.writer.shut(), next.readers.shut(), next.watch.pool.shut())
	}
	// From here on nothing fails. The keeper may wait for the writer, so it goes first; then whoever has a connection is waited for.
	errs := []error{s.keeper.stop()}
	s.writer.drain(func(c *conn) { errs = append(errs, c.close()) })
	s.keeper.conn, s.keeper.page = next.keeper.conn, next.keeper.page
	for _, p := range []*pool{s.readers, s.watch.pool} {
		p.drain(func(c *conn) { errs = append(errs, c.close()) })
	}
	s.watch.seen = nil
	s.life.mu.Lock()
	s.life.file, s.life.wal = next.life.file, next.life.wal
	s.life.mu.Unlock()
	next.readers.drain(s.readers.give)
	next.watch.pool.drain(s.watch.pool.give)
	next.writer.drain(s.writer.give)
	s.keeper.start()
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("closing the file that was replaced", "path", s.path, "err", err)
	}
	s.log.Warn("another file has taken the place of the SQLite store's: going on with that one", "path", s.path)
	return nil
}
