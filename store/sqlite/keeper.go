package sqlite

import (
	"context"
	"fmt"
	"sync/atomic"
)

const (
	// walStep is how much is written, roughly, from one checkpoint to the next.
	walStep = 32 << 20
	// walRest is how little, roughly, is left for the moment in which nobody may write.
	walRest = 2 << 20
	// walPasses is how often a checkpoint tries to get down to walRest. Then producers wait for it: the WAL stays bounded.
	walPasses = 4
)

// keeper works beside the callers: it moves what is committed from the WAL into the file, so that no commit has to, and
// deletes what is trimmed.
type keeper struct {
	store   *Store
	conn    *conn
	bell    chan struct{} // holds one value when there is work
	cancel  context.CancelFunc
	ended   chan struct{} // closed when the keeper's goroutine has ended; nil until it starts
	unmoved atomic.Int64  // bytes committed since the last checkpoint, roughly
}

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.bell, k.ended, k.cancel = make(chan struct{}, 1), make(chan struct{}), cancel
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

// wrote notes that so many bytes were committed.
func (k *keeper) wrote(bytes int64) {
	if k.unmoved.Add(bytes) >= walStep {
		k.ring()
	}
}

func (k *keeper) run(ctx context.Context) {
	defer close(k.ended)
	for {
		select {
		case <-k.bell:
		case <-ctx.Done():
			return
		}
		// What fails here is tried again when the bell rings next. Nobody waits for it.
		if err := k.work(ctx); err != nil && ctx.Err() == nil {
			k.store.log.Error("keeping the SQLite store in order failed", "path", k.store.path, "err", err)
		}
	}
}

func (k *keeper) work(ctx context.Context) error {
	for more := true; more && ctx.Err() == nil; {
		if k.unmoved.Load() >= walStep {
			if err := k.checkpoint(ctx); err != nil {
				return fmt.Errorf("checkpoint: %w", err)
			}
		}
		var err error
		if more, err = k.store.sweep(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkpoint moves the WAL into the file and lets it begin anew.
//
// The WAL begins anew only when all of it is moved and nobody reads from it; while others commit, that moment
// never comes by itself. So most is moved beside the commits, and the rest while commits wait.
func (k *keeper) checkpoint(ctx context.Context) error {
	for range walPasses {
		k.unmoved.Store(0)
		if _, err := k.conn.integers("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
			return err
		}
		if k.unmoved.Load() < walRest {
			break
		}
	}
	w, err := k.store.writer.take(ctx)
	if err != nil {
		return err
	}
	defer k.store.writer.give(w)
	k.unmoved.Store(0)
	_, err = k.conn.integers("PRAGMA wal_checkpoint(RESTART)")
	return err
}
