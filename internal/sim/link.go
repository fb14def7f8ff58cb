package sim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// link is one process' connection to a store in memory: eventlog.Store with faults.
type link struct {
	*host
	member int // which one of a set of shards; else 0
	store  *memory.Store
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err) }

// call makes a call that changes nothing.
func call[T any](ctx context.Context, l *link, do func() (T, error)) (T, error) {
	var none T
	t := l.draw(l.member)
	if err := l.travel(ctx, t.there); err != nil {
		return none, unavailable(err)
	}
	if t.away || t.luck < t.fails {
		return none, unavailable(errLost)
	}
	got, err := do()
	if away := l.travel(ctx, t.back); away != nil {
		return none, unavailable(away)
	}
	return got, err
}

// Commit implements eventlog.Store. Its outcome may be unknown: the commit happened, did not
// happen, or happens later.
func (l *link) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if l.isDead() {
		return nil, unavailable(errLost) // nothing is sent any more
	}
	t := l.draw(l.member)
	sent := l.store.Snapshot()
	if err := l.travel(ctx, t.there); err != nil {
		if t.luck < 0.5 { // it was under way, and arrives all the same
			l.world.later(t.there, func() { _, _ = commit(sent, flush, t.full) })
		}
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	}
	switch {
	case t.away || t.luck < t.fails:
		return nil, unavailable(errLost)
	case t.luck < t.fails+t.unsure/3:
		return nil, fmt.Errorf("%w: before the commit: %w", eventlog.ErrUnsure, errLost)
	case t.luck < t.fails+2*t.unsure/3:
		l.world.later(t.later, func() { _, _ = commit(sent, flush, t.full) })
		return nil, fmt.Errorf("%w: perhaps later: %w", eventlog.ErrUnsure, errLost)
	}
	outcomes, err := commit(sent, flush, t.full)
	if away := l.travel(ctx, t.back); away != nil || t.luck < t.fails+t.unsure {
		return nil, fmt.Errorf("%w: after the commit: %w", eventlog.ErrUnsure, errLost)
	}
	return outcomes, err
}

// commit commits those entries for which the store has space.
func commit(store *memory.Store, flush []eventlog.Entry, full bool) ([]eventlog.Outcome, error) {
	if !full {
		return store.Commit(context.Background(), flush)
	}
	outcomes := make([]eventlog.Outcome, len(flush))
	var fits []eventlog.Entry
	var at []int
	for i, e := range flush {
		if needsSpace(e) {
			outcomes[i].Err = eventlog.ErrNoSpace
			continue
		}
		fits, at = append(fits, e), append(at, i)
	}
	done, err := store.Commit(context.Background(), fits)
	if err != nil {
		return nil, err
	}
	for i, o := range done {
		outcomes[at[i]] = o
	}
	return outcomes, nil
}

func needsSpace(e eventlog.Entry) bool {
	if e.UsesReserve {
		return false
	}
	for _, b := range e.Batches {
		if b.Records > 0 {
			return true
		}
	}
	return false
}

// Read implements eventlog.Store.
func (l *link) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	return call(ctx, l, func() ([]eventlog.Slice, error) { return l.store.Read(context.Background(), spans, maxBytes) })
}

// Changes implements eventlog.Store.
func (l *link) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	type answer struct {
		bounds []eventlog.Bounds
		mark   eventlog.Mark
	}
	got, err := call(ctx, l, func() (answer, error) {
		bounds, mark, err := l.store.Changes(context.Background(), since)
		return answer{bounds, mark}, err
	})
	if err != nil {
		return nil, since, err
	}
	return got.bounds, got.mark, nil
}

// Seek implements eventlog.Store.
func (l *link) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	return call(ctx, l, func() ([]eventlog.Found, error) { return l.store.Seek(context.Background(), goals) })
}

// Trim implements eventlog.Store.
func (l *link) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	errs, err := call(ctx, l, func() ([]error, error) { return l.store.Trim(context.Background(), trims) })
	if errors.Is(err, errLost) || ctx.Err() != nil && err != nil {
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	}
	return errs, err
}

// List implements eventlog.Store. The store's clock is known within bounds.
func (l *link) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	list, err := call(ctx, l, func() ([]eventlog.KeyValue, error) {
		return l.store.List(context.Background(), prefix, after, limit)
	})
	l.blur(list)
	return list, err
}

// Get implements eventlog.Store.
func (l *link) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	found, err := call(ctx, l, func() ([]eventlog.KeyValue, error) {
		return l.store.Get(context.Background(), keys, maxBytes)
	})
	l.blur(found)
	return found, err
}

// blur makes the store's clock in values as inexact as a process knows it.
func (l *link) blur(kvs []eventlog.KeyValue) {
	for i := range kvs {
		if kvs[i].Now == 0 {
			continue // there is no such key
		}
		kvs[i].NowMax = kvs[i].Now + eventlog.Timestamp(l.number(clockBound))
		kvs[i].Now -= eventlog.Timestamp(l.number(clockBound))
		kvs[i].Age = max(0, kvs[i].Age-time.Duration(l.number(clockBound))*time.Millisecond)
	}
}

// clockBound is within how many milliseconds a process knows the store's clock.
const clockBound = 20

// Writable implements eventlog.Writable.
func (l *link) Writable(context.Context) (refusal, err error) {
	if l.draw(l.member).full {
		return eventlog.ErrNoSpace, nil
	}
	return nil, nil
}

// Close implements eventlog.Store.
func (l *link) Close() error { return nil }
