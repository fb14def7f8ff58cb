package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// weather is what the store and the way to it are like. One process may have its own.
type weather struct {
	away   bool    // no call reaches the store
	full   bool    // the store takes no records
	slow   int     // calls take so many times longer
	unsure float64 // how many of the commits have an unknown outcome
	fails  float64 // how many of the calls certainly do nothing
}

// link is one process' connection to the store: eventlog.Store with faults.
type link struct {
	store *memory.Store
	world *world

	mu      sync.Mutex // guards what follows
	random  *rand.Rand
	weather weather
	paused  chan struct{} // not nil while the process stands still; closed when it goes on

	dead chan struct{} // closed when the process is killed
	once sync.Once
}

var errLost = errors.New("the connection was lost")

func (l *link) kill() { l.once.Do(func() { close(l.dead) }) }

func (l *link) isDead() bool {
	select {
	case <-l.dead:
		return true
	default:
		return false
	}
}

// pause lets the process stand still for a while: what it sends and what it is answered waits.
func (l *link) pause(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused != nil {
		return
	}
	going := make(chan struct{})
	l.paused = going
	time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.paused = nil
		close(going)
	})
}

// awake waits while the process stands still.
func (l *link) awake(ctx context.Context) error {
	for {
		l.mu.Lock()
		paused := l.paused
		l.mu.Unlock()
		if paused == nil {
			return nil
		}
		select {
		case <-paused:
		case <-l.dead:
			return errLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// draw returns what happens to a call: how long its ways take, and what the weather makes of it.
func (l *link) draw() (there, back time.Duration, now weather, luck float64) {
	shared := l.world.weatherNow()
	l.mu.Lock()
	defer l.mu.Unlock()
	now = l.weather
	now.away, now.full = now.away || shared.away, now.full || shared.full
	now.slow, now.unsure, now.fails = max(now.slow, shared.slow, 1), max(now.unsure, shared.unsure), max(now.fails, shared.fails)
	way := func() time.Duration {
		d := time.Duration(l.random.ExpFloat64()*float64(wayUsual)) * time.Duration(now.slow)
		switch n := l.random.IntN(1000); {
		case n < 2:
			d += time.Duration(l.random.Int64N(int64(4 * time.Second)))
		case n < 20:
			d += time.Duration(l.random.Int64N(int64(300 * time.Millisecond)))
		}
		return d // what takes seconds does not take longer still: a call must not outlast what is done at the end
	}
	return way(), way(), now, l.random.Float64()
}

// wayUsual is the usual time of a call to the store, and of its answer.
const wayUsual = 2 * time.Millisecond

// travel takes a while. It returns an error if the process is killed, or the caller gives up.
func (l *link) travel(ctx context.Context, d time.Duration) error {
	if err := l.awake(ctx); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return l.awake(ctx)
	case <-l.dead:
		return errLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err) }

// call makes a call that changes nothing.
func call[T any](ctx context.Context, l *link, do func() (T, error)) (T, error) {
	var none T
	there, back, now, luck := l.draw()
	if err := l.travel(ctx, there); err != nil {
		return none, unavailable(err)
	}
	if now.away || luck < now.fails {
		return none, unavailable(errLost)
	}
	got, err := do()
	if away := l.travel(ctx, back); away != nil {
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
	there, back, now, luck := l.draw()
	sent := l.store.Snapshot()
	if err := l.travel(ctx, there); err != nil {
		if luck < 0.5 { // it was under way, and arrives all the same
			l.world.later(there, func() { _, _ = commit(sent, flush, now.full) })
		}
		return nil, fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	}
	switch {
	case now.away || luck < now.fails:
		return nil, unavailable(errLost)
	case luck < now.fails+now.unsure/3:
		return nil, fmt.Errorf("%w: before the commit: %w", eventlog.ErrUnsure, errLost)
	case luck < now.fails+2*now.unsure/3:
		l.world.later(50*back, func() { _, _ = commit(sent, flush, now.full) })
		return nil, fmt.Errorf("%w: perhaps later: %w", eventlog.ErrUnsure, errLost)
	}
	outcomes, err := commit(sent, flush, now.full)
	if away := l.travel(ctx, back); away != nil || luck < now.fails+now.unsure {
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

// Moved implements eventlog.Store.
func (l *link) Moved(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	type answer struct {
		bounds []eventlog.Bounds
		mark   eventlog.Mark
	}
	got, err := call(ctx, l, func() (answer, error) {
		bounds, mark, err := l.store.Moved(context.Background(), since)
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
func (l *link) Trim(ctx context.Context, p eventlog.Partition, before eventlog.Offset) error {
	_, err := call(ctx, l, func() (struct{}, error) { return struct{}{}, l.store.Trim(context.Background(), p, before) })
	if errors.Is(err, errLost) || ctx.Err() != nil && err != nil {
		return fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	}
	return err
}

// List implements eventlog.Store. The store's clock is known within bounds.
func (l *link) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	list, err := call(ctx, l, func() ([]eventlog.KeyValue, error) {
		return l.store.List(context.Background(), prefix, after, limit)
	})
	l.blur(list)
	return list, err
}

func (l *link) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	found, err := call(ctx, l, func() ([]eventlog.KeyValue, error) {
		return l.store.Get(context.Background(), keys, maxBytes)
	})
	l.blur(found)
	return found, err
}

// blur makes the store's clock in values as inexact as a process knows it.
func (l *link) blur(kvs []eventlog.KeyValue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range kvs {
		if kvs[i].Now == 0 {
			continue // there is no such key
		}
		kvs[i].NowMax = kvs[i].Now + eventlog.Timestamp(l.random.Int64N(clockBound))
		kvs[i].Now -= eventlog.Timestamp(l.random.Int64N(clockBound))
		kvs[i].Age = max(0, kvs[i].Age-time.Duration(l.random.Int64N(clockBound))*time.Millisecond)
	}
}

// clockBound is within how many milliseconds a process knows the store's clock.
const clockBound = 20

// Writable implements eventlog.Writable.
func (l *link) Writable(context.Context) (refusal, err error) {
	if _, _, now, _ := l.draw(); now.full {
		return eventlog.ErrNoSpace, nil
	}
	return nil, nil
}

// Close implements eventlog.Store.
func (l *link) Close() error { return nil }
