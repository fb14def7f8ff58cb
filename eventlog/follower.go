package eventlog

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

// wakeFloor is the least time between the beginnings of two looks.
const wakeFloor = 5 * time.Millisecond

// follow learns what other processes wrote: by a poll that never relies on being woken, and at once where the store can
// wake. One question serves every reader of every partition.
func (l *Log) follow(ctx context.Context) error {
	woken := l.wakes(ctx)
	failures := 0
	var began time.Time
	for {
		// Some of it at random, so that brokers which started together do not ask together; and some is left for what follows the look:
		// within Poll what was written has arrived.
		doubtful := false
		wait := l.cfg.Poll*4/5 + rand.N(l.cfg.Poll/10)
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-woken:
			if !ok {
				woken = nil // it ended; the poll goes on
			}
			select { // anybody may wake us in a loop
			case <-ctx.Done():
				return nil
			case <-time.After(wakeFloor - time.Since(began)):
			}
		case <-l.doubts:
			doubtful = true
		case <-time.After(wait):
		}
		began = time.Now()
		err := l.look(ctx, doubtful)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && failures == 0:
			l.cfg.Logger.Warn("the store does not answer; trying on", "err", err)
		case err == nil && failures > 0:
			l.cfg.Logger.Info("the store answers again", "failures", failures)
		}
		if err == nil {
			failures = 0
			continue
		}
		failures++
		pause(ctx, failures)
	}
}

func (l *Log) wakes(ctx context.Context) <-chan struct{} {
	waker, ok := l.store.(Waker)
	if !ok {
		return nil
	}
	woken, err := waker.Wake(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.cfg.Logger.Warn("no wake-ups from the store; polling alone", "every", l.cfg.Poll, "err", err)
	}
	return woken
}

// look asks the store what moved. Where the store is doubtful, or shows less than before, it asks for all.
func (l *Log) look(ctx context.Context, doubtful bool) (err error) {
	defer func() {
		if err != nil {
			l.health.Store(&err)
		} else {
			l.health.Store(nil)
		}
	}()
	if doubtful || l.gate.isShut() {
		return l.enter(ctx)
	}
	l.tail.beginLook()
	moved, mark, err := l.store.Moved(ctx, l.mark)
	if errors.Is(err, ErrRewound) || err == nil && l.tail.lost(moved) {
		return l.enter(ctx)
	}
	if l.failed("moved", err) != nil {
		return err
	}
	for _, b := range moved {
		if b.Partition == catalogPartition && b.Next != l.catalogAt {
			if err := l.loadCatalog(ctx); err != nil {
				return err // the mark stays: the next look sees the catalog moved again
			}
			l.catalogAt = b.Next
		}
		l.tail.follow(l.tail.age(), b)
	}
	l.mark = mark
	l.contact.heard()
	l.lookWritable(ctx)
	return nil
}
