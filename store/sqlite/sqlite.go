// Package sqlite keeps the log in one SQLite file: the store that needs no server.
//
// One connection writes, one transaction and one fsync to a flush; a few others read. Another process may open the same
// file: the two take turns.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/weir-log/weir/eventlog"
)

// readersMax is how many reads run at once. Others wait.
const readersMax = 4

// Store is a log in a SQLite file.
type Store struct {
	path    string
	log     *slog.Logger
	closed  chan struct{}
	close   func() error
	writer  *pool // of the one connection that writes
	readers *pool
	watch   watch
	keeper  keeper
	disk    func(dir string) (disk, error) // statDisk, but for tests
}

var _ eventlog.Store = (*Store)(nil)

// Options of a store. The zero value is good.
type Options struct {
	// Logger hears of what goes wrong where no caller waits for an answer. The default is slog.Default().
	Logger *slog.Logger

	walStep int64 // bytes; tests make it small
}

// Open opens the store in the file at a path. It creates the file, and the directories above it, where there is none, and
// brings the tables of an older weir up to date. It refuses a file of another program, and one of a newer weir.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	s := &Store{path: path, log: options.Logger, closed: make(chan struct{}), disk: statDisk}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.close = sync.OnceValue(s.shut)
	s.writer, s.readers, s.watch.pool = newPool(s.closed, 1), newPool(s.closed, readersMax), newPool(s.closed, 1)
	s.keeper.store, s.keeper.step = s, cmp.Or(options.walStep, walStep)
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open the SQLite store %s: %w", path, s.explain(err)), s.Close())
	}
	s.keeper.start()
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	if err := create(s.path); err != nil {
		return err
	}
	writer, err := openWriter(ctx, s.path)
	if err != nil {
		return err
	}
	s.writer.add(writer)
	for range readersMax {
		reader, err := openReader(s.path)
		if err != nil {
			return err
		}
		s.readers.add(reader)
	}
	watcher, err := openReader(s.path)
	if err != nil {
		return err
	}
	s.watch.pool.add(watcher)
	return s.keeper.open()
}

// create makes an empty file that only its owner may read, unless there is one already. A file that is there is left alone:
// opening and closing it here would drop the locks that SQLite holds on it elsewhere in this process.
func create(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("it is a directory: name a file in it, such as %s", filepath.Join(path, "weir.db"))
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), syncDir(filepath.Dir(path)))
}

// syncDir puts a directory's new entry on disk. Windows has no such call and needs none.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Close implements eventlog.Store. It waits for the calls under way; later ones get ErrClosed.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	close(s.closed)
	errs := []error{s.keeper.stop(), s.watch.pool.shut(), s.readers.shut(), s.writer.shut()}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the SQLite store %s: %w", s.path, err)
	}
	return nil
}

// change runs do in a transaction of its own and commits it. When it returns nil, what do wrote is on disk.
func (s *Store) change(ctx context.Context, do func(w *conn) error) error {
	w, err := s.writer.take(ctx)
	if err != nil {
		return err
	}
	defer s.writer.give(w)
	if err := turn(ctx, func() error { return w.exec("BEGIN IMMEDIATE") }); err != nil {
		return s.explain(err)
	}
	if err := do(w); err != nil {
		w.rollback()
		return s.explain(err)
	}
	if err := w.exec("COMMIT"); err != nil {
		w.rollback()
		return s.explainCommit(err)
	}
	s.keeper.committed(w)
	return nil
}

// view runs do on one unchanging picture of the store.
func (s *Store) view(ctx context.Context, do func(r *conn) error) error {
	r, err := s.readers.take(ctx)
	if err != nil {
		return err
	}
	defer s.readers.give(r)
	if err := r.exec("BEGIN"); err != nil {
		return s.explain(err)
	}
	defer r.rollback() // nothing was written; it only lets go of the picture
	return s.explain(do(r))
}
