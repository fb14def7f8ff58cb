package publish

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
)

// prefix begins the keys in the store of idempotency keys.
const prefix = "publish/once/"

// swept is the key whose age shows when a process last began to look for old keys.
const swept = "publish/swept"

const (
	sweepsPerAge = 24          // how often a process looks for old keys within Config.IdempotencyAge
	sweepOften   = time.Second // the shortest time between two such sweeps
	sweepSeldom  = time.Hour   // the longest time between two such sweeps
	forgetMax    = 100         // how many keys are read, and deleted, at a time: a note has 150 kB at most
)

// Run forgets idempotency keys that are older than Config.IdempotencyAge, by the store's clock,
// until ctx ends. Any number of processes may run it: in each interval only one of them looks for
// old keys. With a log that is read-only it does nothing.
func (p *Publisher) Run(ctx context.Context) error {
	if p.log.ReadOnly() {
		<-ctx.Done()
		return nil
	}
	every := min(max(p.cfg.IdempotencyAge/sweepsPerAge, sweepOften), sweepSeldom)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		mine, err := p.claim(ctx, every)
		if mine {
			err = p.forget(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("old idempotency keys were not deleted; trying again later", "in", every, "err", err)
		}
	}
}

// claim reports whether this process should look for old keys now: no process has begun to look in
// the last three quarters of the duration every.
func (p *Publisher) claim(ctx context.Context, every time.Duration) (bool, error) {
	return ledger.Turn(ctx, p.log, swept, []byte("1"), func(now eventlog.KeyValue) bool { return now.Age >= every*3/4 })
}

// forget reads all keys: one store call per hundred, and a share of a flush for each old one.
func (p *Publisher) forget(ctx context.Context) error {
	for after := ""; ; {
		kvs, err := p.log.List(ctx, prefix, after, forgetMax)
		if err != nil {
			return fmt.Errorf("list idempotency keys: %w", err)
		}
		var under []*eventlog.Ticket
		for _, kv := range kvs {
			after = kv.Key
			if e, old := p.old(kv); old {
				under = append(under, p.log.Submit(ctx, e))
			}
		}
		if err := forgotten(ctx, under); err != nil || len(kvs) < forgetMax {
			return err
		}
	}
}

// old returns the entry that forgets a key with all its parts, if the key is old enough.
func (p *Publisher) old(kv eventlog.KeyValue) (e eventlog.Entry, old bool) {
	if kv.Age <= p.cfg.IdempotencyAge || strings.Contains(kv.Key[len(prefix):], "/") {
		return e, false // it is young, or a part, which is deleted with the key that it belongs to
	}
	n, _, err := parseNote(string(kv.Value))
	if err != nil {
		p.cfg.Logger.Error("an idempotency key cannot be read, and is not deleted", "key", kv.Key, "err", err)
		return e, false
	}
	e.Checks = []eventlog.Check{{Key: kv.Key, Version: kv.Version}}
	for i := range n.batches {
		e.Puts = append(e.Puts, eventlog.Put{Key: once{key: kv.Key}.part(i)})
	}
	return e, true
}

// forgotten waits for the outcomes. ErrStale is no error here: another process deleted or replaced
// the key first.
func forgotten(ctx context.Context, under []*eventlog.Ticket) (err error) {
	for _, t := range under {
		if _, e := t.Wait(ctx); e != nil && !errors.Is(e, eventlog.ErrStale) {
			err = fmt.Errorf("delete old idempotency keys: %w", e)
		}
	}
	return err
}
