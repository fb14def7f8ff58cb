// Package sqlite keeps the log in one SQLite file: the store that needs no server.
//
// One connection writes, with one transaction and one fsync for a flush; a few others read. Another
// process may open the same file: then the two write in turn.
package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// readersMax is how many reads run concurrently. Further reads wait.
const readersMax = 4

// Store is a log in a SQLite file.
type Store struct {
	name     string                 // the absolute path that Open was given; may lead through symbolic links
	file     atomic.Pointer[string] // where name leads, without symbolic links
	log      *slog.Logger
	closed   chan struct{}
	close    func() error
	writer   *pool // has the one connection that writes
	readers  *pool
	watch    watch
	keeper   keeper
	syncDir  func(dir string) error         // syncDir, except in tests
	refused  atomic.Pointer[refusal]        // of the last commit, if it was refused because of the disk
	disk     func(dir string) (disk, error) // statDisk, except in tests
	identity identity
	layout   storerow.Layout

	noUpgrade bool

	reopening sync.Mutex // held while the connections are replaced or closed
}

var _ eventlog.Store = (*Store)(nil)

// Options of a store. The zero value is the default.
type Options struct {
	// Logger logs what fails while no caller waits for an answer. The default is slog.Default().
	Logger *slog.Logger
	// NoUpgrade: Open fails with eventlog.ErrUpgradeDue where it would upgrade what an older weir
	// made.
	NoUpgrade bool

	// Tests set these.
	walStep    int64 // bytes
	walTimeout time.Duration
	disk       func(dir string) (disk, error)
	syncDir    func(dir string) error
}

// Open opens the store in the file at path. It creates the file and its directories if they do not
// exist, and migrates the tables of an older weir. It refuses a file of another program, and a file
// of a newer weir.
//
// A path may lead through symbolic links. All that belongs to the store is beside its file, not
// beside a link. If the path leads to another file later, the store is rewound: it continues with
// that file.
func Open(ctx context.Context, path string, options Options) (*Store, error) {
	name, file, err := resolve(path)
	if err != nil {
		return nil, fmt.Errorf("open the SQLite store %s: %w", path, err)
	}
	s := &Store{name: name, log: options.Logger, closed: make(chan struct{}), disk: options.disk, syncDir: options.syncDir, noUpgrade: options.NoUpgrade}
	s.file.Store(&file)
	if s.disk == nil {
		s.disk = statDisk
	}
	if s.syncDir == nil {
		s.syncDir = syncDir
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	step := int64(walStep)
	if disk, err := s.disk(filepath.Dir(file)); err == nil {
		step = disk.walStep()
	}
	s.close = sync.OnceValue(s.shut)
	s.writer, s.readers, s.watch.pool = newPool(s.closed, 1), newPool(s.closed, readersMax), newPool(s.closed, 1)
	s.keeper.store, s.keeper.step, s.keeper.wait = s, cmp.Or(options.walStep, step), cmp.Or(options.walTimeout, walTimeout)
	s.keeper.woken = make(chan struct{}, 1)
	err = create(s.path(), s.syncDir)
	if err == nil {
		err = s.open(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the SQLite store %s: %w", path, s.explain(err)), s.Close())
	}
	s.keeper.start()
	return s, nil
}

func (s *Store) open(ctx context.Context) error {
	writer, err := s.openWriter(ctx, s.path())
	if fullAtOpen(err) && s.release(0) {
		writer, err = s.openWriter(ctx, s.path())
	}
	if err != nil {
		return err
	}
	s.writer.add(writer)
	for range readersMax {
		reader, err := openReader(s.path())
		if err != nil {
			return err
		}
		s.readers.add(reader)
	}
	watcher, err := openReader(s.path())
	if err != nil {
		return err
	}
	s.watch.pool.add(watcher)
	if err := s.keeper.open(); err != nil {
		return err
	}
	if err := s.refill(); err != nil {
		s.log.Warn("no space is reserved for deletion on a full disk", "err", err)
	}
	return s.opened()
}

// path is where the file is, without symbolic links.
func (s *Store) path() string { return *s.file.Load() }

// resolve returns a path as an absolute one, and where it leads without symbolic links. SQLite puts
// its WAL beside the file, not beside a link to it (unixFullPathname in os_unix.c). The file may
// not exist yet; a link must lead somewhere.
func resolve(path string) (name, file string, err error) {
	if name, err = filepath.Abs(path); err != nil {
		return "", "", err
	}
	file, err = filepath.EvalSymlinks(name)
	if !errors.Is(err, fs.ErrNotExist) {
		return name, file, err
	}
	if target, err := os.Readlink(name); err == nil {
		return "", "", fmt.Errorf("%w: %s is a symbolic link to %s, which does not exist: mount its disk, or correct the link", eventlog.ErrUnavailable, name, target)
	}
	_, dir, err := resolve(filepath.Dir(name))
	return name, filepath.Join(dir, filepath.Base(name)), err
}

// creating is held while this process may have a descriptor of a file that SQLite does not know.
var creating sync.Mutex

// create creates an empty file that only its owner may read, unless there is a file. It does not
// open an existing file: closing it would drop the locks that SQLite holds on it in this process.
//
// sync is syncDir, except in tests. It is called for each directory that has a new entry: without
// it a loss of power could lose the name of the file.
func create(path string, sync func(dir string) error) error {
	dir := filepath.Dir(path)
	if err := makeDirs(dir, sync); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("it is a directory: give the path of a file in it, such as %s", filepath.Join(path, "weir.db"))
	}
	creating.Lock() // whoever opens the file with SQLite comes here first: so SQLite does not have the new file open
	defer creating.Unlock()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Close(), sync(dir))
}

// makeDirs creates a directory and its parents, and syncs each.
func makeDirs(dir string, sync func(dir string) error) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, os.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := makeDirs(above, sync); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return sync(above)
}

// syncDir syncs the new entry of a directory. Windows has no such call and needs none.
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

// Close implements eventlog.Store. It waits for calls in progress; later calls get ErrClosed.
func (s *Store) Close() error { return s.close() }

func (s *Store) shut() error {
	s.reopening.Lock()
	defer s.reopening.Unlock()
	close(s.closed)
	errs := []error{s.keeper.stop(), s.watch.pool.shut(), s.readers.shut(), s.writer.shut()}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the SQLite store %s: %w", s.path(), err)
	}
	return nil
}

// change runs do in a transaction and commits it. If it returns nil, the changes are on disk. On a
// full disk it uses the reserve: so it is for changes that are small, or free space. do may run
// twice.
func (s *Store) change(ctx context.Context, do func(w *conn) error) error {
	return s.exclusively(ctx, func(w *conn) error { return s.attemptWithReserve(ctx, w, do) })
}

// exclusively calls use with the one connection that writes.
func (s *Store) exclusively(ctx context.Context, use func(w *conn) error) error {
	w, err := s.writer.take(ctx)
	if err != nil {
		return err
	}
	defer s.writer.give(w)
	return use(w)
}

// attemptWithReserve repeats a change, with the space of the reserve, if the disk is full.
func (s *Store) attemptWithReserve(ctx context.Context, w *conn, do func(w *conn) error) error {
	err := s.attempt(ctx, w, do)
	if errors.Is(err, eventlog.ErrNoSpace) && s.freeSpace() {
		err = s.attempt(ctx, w, do)
	}
	return err
}

// attempt runs do in one transaction.
func (s *Store) attempt(ctx context.Context, w *conn, do func(w *conn) error) error {
	if err := retryBusy(ctx, func() error { return w.exec("BEGIN IMMEDIATE") }); err != nil {
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

// view runs do on one snapshot of the store.
func (s *Store) view(ctx context.Context, do func(r *conn) error) error {
	r, err := s.readers.take(ctx)
	if err != nil {
		return err
	}
	defer s.readers.give(r)
	if err := r.exec("BEGIN"); err != nil {
		return s.explain(err)
	}
	defer r.rollback() // nothing was written: this only ends the snapshot
	return s.explain(do(r))
}
