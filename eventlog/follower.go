package eventlog

import (
	"context"
	"errors"
	"time"

	"github.com/weir-log/weir/internal/chance"
)

// pollMin is the least time between the starts of two polls.
const pollMin = 5 * time.Millisecond

// follow learns what other processes wrote: it polls, and polls immediately when the store sends a
// wake-up. One poll serves every reader of every partition.
func (l *Log) follow(ctx context.Context) error {
	woken := l.wakes(ctx)
	failures, upgraded := 0, false
	var began time.Time
	for {
		// Jitter, so that brokers started together do not poll together. The wait is below Poll, so
		// that with the poll itself a write is seen within Poll.
		suspected := false
		wait := l.cfg.Poll*4/5 + chance.N(l.cfg.Poll/10)
		select {
		case <-ctx.Done():
			return nil
		case _, ok := <-woken:
			if !ok {
				woken = nil // no more wake-ups; polling continues
			}
			select { // any client of the store may send wake-ups without pause
			case <-ctx.Done():
				return nil
			case <-time.After(pollMin - time.Since(began)):
			}
		case <-l.rewindSuspected:
			suspected = true
		case <-time.After(wait):
		}
		began = time.Now()
		err := l.poll(ctx, suspected)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrUpgraded) && !upgraded:
			l.cfg.Logger.Error("a newer weir has upgraded the store: this process reads and writes nothing more; restart it with the new version", "err", err)
		case errors.Is(err, ErrUpgraded):
		case err != nil && failures == 0:
			l.cfg.Logger.Warn("the store does not answer; trying again", "err", err)
		case err == nil && failures > 0:
			l.cfg.Logger.Info("the store answers again", "failures", failures)
		}
		upgraded = errors.Is(err, ErrUpgraded)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		Pause(ctx, failures)
	}
}

func (l *Log) wakes(ctx context.Context) <-chan struct{} {
	waker, ok := As[Waker](l.store)
	if !ok {
		return nil
	}
	woken, err := waker.Wake(ctx)
	if err != nil && !errors.Is(err, context.Canceled) {
		l.cfg.Logger.Warn("no wake-ups from the store; only polling finds new records", "every", l.cfg.Poll, "err", err)
	}
	return woken
}

// poll reads from the store which partitions changed. If a rewind is suspected, or a partition ends
// below its known end, poll enters the store's incarnation again.
func (l *Log) poll(ctx context.Context, suspected bool) (err error) {
	defer func() {
		if err != nil {
			l.health.Store(&err)
		} else {
			l.health.Store(nil)
		}
	}()
	if suspected || l.gate.isShut() {
		return l.enter(ctx)
	}
	l.tail.beginCheck()
	changed, mark, err := l.store.Changes(ctx, l.mark)
	if errors.Is(err, ErrRewound) || err == nil && len(l.tail.rewound(changed)) > 0 {
		return l.enter(ctx)
	}
	if l.failed("moved", err) != nil {
		return err
	}
	for _, b := range changed {
		if b.Partition == catalogPartition && b.Next != l.catalogAt {
			if err := l.loadCatalog(ctx); err != nil {
				return err // the mark stays: the next poll returns partition 0 again
			}
			l.catalogAt = b.Next
		}
		l.tail.updateBounds(l.tail.incarnationNumber(), b)
	}
	l.mark = mark
	l.outages.answered()
	l.checkWritable(ctx)
	return nil
}
