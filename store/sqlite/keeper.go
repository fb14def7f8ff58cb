package sqlite

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// walStep is the length of the WAL, in bytes, at which it is checkpointed: copied into the
	// file. A longer WAL costs disk space and a slower start after a crash; a shorter WAL costs
	// more fsyncs of the file.
	walStep = 32 << 20
	// walRest: a checkpoint tries to leave at most 1/walRest of a step to be copied while commits
	// wait.
	walRest = 16
	// walPasses is how often a checkpoint tries to get down to walRest before commits wait for it
	// anyway.
	walPasses = 4
	// walMost is how many steps long the WAL must be before a commit itself checkpoints it: then
	// the keeper, or the disk, is slower than the producers.
	walMost = 3
	// walTimeout is how long commits wait for reads in progress.
	walTimeout = 100 * time.Millisecond
	// workAgain is the wait before failed work of the keeper is retried, even without a call of
	// wake: on a full disk, only its deletions free space.
	workAgain = 5 * time.Second
)

// keeper works in the background: it checkpoints the WAL, so that no commit has to, and deletes
// trimmed batches.
type keeper struct {
	store  *Store
	pass   sync.Mutex // guards conn during a checkpoint; restart holds the writer, too
	conn   *conn
	step   int64         // the length of the WAL, in bytes, at which it is checkpointed
	wait   time.Duration // how long commits wait for reads in progress
	page   int64         // the page size of the file, in bytes
	woken  chan struct{} // has a value when there is work
	cancel context.CancelFunc
	ended  chan struct{} // closed when the keeper's goroutine has ended; nil until it starts
	due    atomic.Int64  // the length of the WAL, in bytes, at the next checkpoint
	length atomic.Int64  // the length of the WAL, in bytes, after the last commit of this process
}

// open opens the conn of the keeper.
func (k *keeper) open() (err error) {
	if k.conn, err = openReader(k.store.path()); err != nil {
		return err
	}
	if err := k.conn.set([]string{"PRAGMA busy_timeout = " + strconv.FormatInt(k.wait.Milliseconds(), 10)}); err != nil {
		return err
	}
	k.page, err = k.conn.integer("PRAGMA page_size")
	return err
}

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.ended, k.cancel = make(chan struct{}), cancel
	k.due.Store(k.step)
	k.wake() // an earlier process may have left batches to delete
	go k.run(ctx)
}

// pause ends what runs in the background. The connection stays open: commits use it, too.
func (k *keeper) pause() {
	if k.ended != nil {
		k.cancel()
		<-k.ended
	}
}

func (k *keeper) stop() error {
	k.pause()
	if k.conn == nil {
		return nil
	}
	return k.conn.close()
}

// wake starts the keeper if it is idle.
func (k *keeper) wake() {
	select {
	case k.woken <- struct{}{}:
	default:
	}
}

// committed reads the length of the WAL after a commit. If that fails, the next commit reads it.
func (k *keeper) committed(w *conn) {
	length, _, err := w.wal("NOOP")
	if err != nil {
		return
	}
	k.length.Store(length * k.page)
	if !k.overdue() {
		return
	}
	if k.length.Load() < k.due.Load()+(walMost-1)*k.step {
		k.wake()
		return
	}
	if err := k.restart(); err != nil {
		k.failed(err)
	}
}

// failed delays the next attempt until the WAL is longer by a step, so that not every commit makes
// one.
func (k *keeper) failed(err error) {
	k.due.Store(k.length.Load() + k.step)
	k.store.log.Error("cannot copy the WAL of the SQLite store into its file", "path", k.store.path(), "err", k.store.explain(err))
}

func (k *keeper) overdue() bool { return k.length.Load() >= k.due.Load() }

func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	var again <-chan time.Time
	for {
		select {
		case <-k.woken:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		err := k.work(ctx)
		if err == nil || ctx.Err() != nil {
			continue
		}
		again = time.After(workAgain)
		if !errors.Is(err, eventlog.ErrUpgraded) && !errors.Is(err, eventlog.ErrRewound) { // the log, which polls, tells of these
			k.store.log.Error("maintenance of the SQLite store failed; trying again later", "path", k.store.path(), "after", workAgain, "err", err)
		}
	}
}

func (k *keeper) work(ctx context.Context) error {
	for more := true; more && ctx.Err() == nil; {
		if k.overdue() {
			if err := k.checkpoint(ctx); err != nil && ctx.Err() == nil {
				k.failed(err)
			}
		}
		var err error
		if more, err = k.store.sweep(ctx); err != nil {
			return err
		}
	}
	return k.store.refill()
}

// checkpoint copies the WAL into the file and restarts it.
//
// The WAL restarts only when all of it is copied and nobody reads from it; under constant commits
// that moment never comes by itself. So most is copied while commits run, and the remainder while
// commits wait.
func (k *keeper) checkpoint(ctx context.Context) error {
	for range walPasses {
		left, err := k.passive()
		if err != nil {
			return err
		}
		if left <= k.step/walRest {
			break
		}
	}
	return k.store.exclusively(ctx, func(*conn) error {
		if !k.overdue() {
			return nil // a commit checkpointed it
		}
		return k.restart()
	})
}

// passive copies what can be copied while commits run, and returns how many bytes are left.
func (k *keeper) passive() (left int64, err error) {
	k.pass.Lock()
	defer k.pass.Unlock()
	if _, _, err := k.conn.wal("PASSIVE"); err != nil {
		return 0, err
	}
	length, moved, err := k.conn.wal("NOOP")
	return (length - moved) * k.page, err
}

// restart copies all of the WAL and restarts it. The caller holds the writer.
func (k *keeper) restart() error {
	k.pass.Lock()
	defer k.pass.Unlock()
	row, err := k.conn.integers("PRAGMA wal_checkpoint(RESTART)")
	if err != nil {
		return err
	}
	busy, length := row[0] != 0, row[1]*k.page
	if !busy { // the next commit writes at the start of the WAL
		k.length.Store(0)
		k.due.Store(k.step)
		return nil
	}
	if row[1] < 0 { // another process is checkpointing, and SQLite returned no counts
		k.due.Store(k.length.Load() + k.step)
		return nil
	}
	k.due.Store(length + k.step)
	k.store.log.Warn("the WAL of the SQLite store grows because of a long read, such as a backup or an open sqlite3 shell",
		"path", k.store.path(), "bytes", length)
	return nil
}

// wal runs a checkpoint of a mode and returns how many pages the WAL has, and how many of them are
// copied. NOOP only counts. If other connections keep pages from being copied, these count as not
// copied.
func (c *conn) wal(mode string) (length, moved int64, err error) {
	row, err := c.integers("PRAGMA wal_checkpoint(" + mode + ")")
	if err != nil {
		return 0, 0, err
	}
	return row[1], row[2], nil
}
