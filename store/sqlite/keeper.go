package sqlite

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// walStep is how long the WAL grows, in bytes, before it is moved into the file. Longer costs more disk and a slower
	// start after a crash; shorter costs more fsyncs of the file.
	walStep = 32 << 20
	// walRest is which part of a step, one in so many, may be left for the moment in which nobody can commit.
	walRest = 16
	// walPasses is how often a checkpoint tries to get down to that, before commits wait for it in any case.
	walPasses = 4
	// walMost is at how many steps a commit moves the WAL itself: the keeper, or the disk, is slower than the producers.
	walMost = 3
	// walPatience is how long commits wait for reads under way.
	walPatience = 100 * time.Millisecond
	// workAgain is when what the keeper could not do is tried again, though nobody asks: a full disk is emptied by deleting.
	workAgain = 5 * time.Second
)

// keeper works beside the callers: it moves what is committed from the WAL into the file, so that no commit has to, and
// deletes what is trimmed.
type keeper struct {
	store  *Store
	pass   sync.Mutex // guards conn while a checkpoint works beside the commits; who holds the writer as well may restart the WAL
	conn   *conn
	step   int64         // how long the WAL grows, in bytes, before it is moved
	wait   time.Duration // how long commits wait for reads under way
	page   int64         // bytes
	bell   chan struct{} // holds one value when there is work
	cancel context.CancelFunc
	ended  chan struct{} // closed when the keeper's goroutine has ended; nil until it starts
	due    atomic.Int64  // the length of the WAL, in bytes, at which it is moved next
	length atomic.Int64  // of the WAL after the last commit here
}

// open gives the keeper its conn.
func (k *keeper) open() (err error) {
	if k.conn, err = openReader(k.store.path); err != nil {
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
	k.ring() // an earlier process may have left something to sweep
	go k.run(ctx)
}

func (k *keeper) stop() error {
	if k.ended != nil {
		k.cancel()
		<-k.ended
	}
	if k.conn == nil {
		return nil
	}
	return k.conn.close()
}

// ring calls the keeper to work.
func (k *keeper) ring() {
	select {
	case k.bell <- struct{}{}:
	default:
	}
}

// committed looks how long the WAL is after a commit. Should that fail, the next commit looks again.
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
		k.ring()
		return
	}
	if err := k.restart(); err != nil {
		k.failed(err)
	}
}

// failed puts the next try off: not with every commit.
func (k *keeper) failed(err error) {
	k.due.Store(k.length.Load() + k.step)
	k.store.log.Error("moving the WAL of the SQLite store into its file failed", "path", k.store.path, "err", k.store.explain(err))
}

func (k *keeper) overdue() bool { return k.length.Load() >= k.due.Load() }

func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	var again <-chan time.Time
	for {
		select {
		case <-k.bell:
		case <-again:
		case <-ctx.Done():
			return
		}
		again = nil
		if err := k.work(ctx); err != nil && ctx.Err() == nil {
			k.store.log.Error("keeping the SQLite store in order failed; it is tried again", "path", k.store.path, "after", workAgain, "err", err)
			again = time.After(workAgain)
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

// checkpoint moves the WAL into the file and lets it begin anew.
//
// The WAL begins anew only when all of it is moved and nobody reads from it; while others commit, that moment
// never comes by itself. So most is moved beside the commits, and the rest while commits wait.
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
			return nil // a commit could not wait
		}
		return k.restart()
	})
}

// passive moves what can be moved beside the commits, and returns how many bytes are left.
func (k *keeper) passive() (left int64, err error) {
	k.pass.Lock()
	defer k.pass.Unlock()
	if _, _, err := k.conn.wal("PASSIVE"); err != nil {
		return 0, err
	}
	length, moved, err := k.conn.wal("NOOP")
	return (length - moved) * k.page, err
}

// restart moves all of the WAL and lets it begin anew. The caller holds the writer.
func (k *keeper) restart() error {
	k.pass.Lock()
	defer k.pass.Unlock()
	row, err := k.conn.integers("PRAGMA wal_checkpoint(RESTART)")
	if err != nil {
		return err
	}
	busy, length := row[0] != 0, row[1]*k.page
	if !busy { // the next commit begins the WAL anew
		k.length.Store(0)
		k.due.Store(k.step)
		return nil
	}
	if row[1] < 0 { // another process is at it, and nothing was counted
		k.due.Store(k.length.Load() + k.step)
		return nil
	}
	k.due.Store(length + k.step)
	k.store.log.Warn("the WAL of the SQLite store grows while something reads for long, such as a backup or an open shell",
		"path", k.store.path, "bytes", length)
	return nil
}

// wal runs a checkpoint of a mode and returns how many pages the WAL then holds, and how many of them are moved.
// NOOP only looks. What others keep it from doing shows in the numbers.
func (c *conn) wal(mode string) (length, moved int64, err error) {
	row, err := c.integers("PRAGMA wal_checkpoint(" + mode + ")")
	if err != nil {
		return 0, 0, err
	}
	return row[1], row[2], nil
}
