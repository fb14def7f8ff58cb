package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// startPatience is how long a start waits until a shard is open. It is more than drivers take
	// to give up connecting (10 s), so that other errors than a loss, such as wrong credentials,
	// end the start.
	startPatience = 12 * time.Second
	// reopenMin and reopenMax bound the pause before a shard that was away at the start is tried
	// again. The pause doubles.
	reopenMin, reopenMax = 250 * time.Millisecond, 5 * time.Second
)

// away is the store of a shard that did not answer when the set was opened. It is opened in the
// background, and its methods answer ErrUnavailable until then.
//
//	away ── it is opened, and is this shard ──► open
//
// Its optional interfaces are found (eventlog.As) once it is open.
type away struct {
	member *member
	open   func(context.Context) (eventlog.Store, error) // nil: found is the store, for ever
	first  *opening                                      // an attempt of the start that has not ended; nil: there is none
	check  func(found) error                             // returns an error unless what was found is this shard
	opened chan struct{}                                 // closed when it is open

	found eventlog.Store // not yet known to be this shard; nil: there is none. Only run and Close use it, one after the other

	mu    sync.Mutex     // guards what follows
	store eventlog.Store // nil: it is not open
	why   error          // why it is not open
}

// opening is an attempt to open a store.
type opening struct {
	done  chan struct{} // closed when what follows is set
	store eventlog.Store
	err   error
}

// isAway makes a member one that is away. Only the start calls it.
func (m *member) isAway(why error, first *opening) {
	a := &away{member: m, first: first, found: m.store, opened: make(chan struct{}), why: why}
	if m.open != nil {
		a.open = func(ctx context.Context) (eventlog.Store, error) { return m.open(ctx, true) }
	}
	m.store, m.away, m.unentered = a, a, true
}

// run opens the store, until that succeeds or ctx ends.
func (a *away) run(ctx context.Context) {
	strange := false // it is open, and is not this shard: logged once
	for pause := reopenMin; ; pause = min(2*pause, reopenMax) {
		if a.first == nil { // the start has not begun to open it
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
		err := a.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.why = err
		a.mu.Unlock()
		if !isLoss(err) && !strange {
			a.member.logger.Error("a shard that was away cannot be used; nothing was written to it; trying again", "shard", a.member.number, "store", a.member.name, "err", err)
		}
		strange = !isLoss(err)
	}
}

// attempt opens the store once. What is not this shard is closed again: another store may be there
// the next time.
func (a *away) attempt(ctx context.Context) (err error) {
	if a.found == nil {
		if a.found, err = a.begin(ctx); err != nil {
			a.found = nil
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	is, err := identity(within, a.found, a.member.number)
	if err == nil {
		err = a.check(is)
	}
	if err != nil && !isLoss(err) && a.open != nil {
		err = errors.Join(err, a.found.Close())
		a.found = nil
	}
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.store = a.found
	a.mu.Unlock()
	close(a.opened)
	return nil
}

// begin opens a store, or waits for the start's attempt.
func (a *away) begin(ctx context.Context) (eventlog.Store, error) {
	if first := a.first; first != nil {
		a.first = nil
		<-first.done // its context ends with ctx
		return first.store, first.err
	}
	return a.open(ctx)
}

// Unwrap implements eventlog.Wrapper; nil: the store is not open.
func (a *away) Unwrap() eventlog.Store {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.store
}

// use returns the store, if it is open.
func (a *away) use() (eventlog.Store, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.store != nil:
		return a.store, nil
	case isLoss(a.why):
		return nil, fmt.Errorf("%w (not opened since this process started)", a.why)
	}
	return nil, fmt.Errorf("%w: it cannot be used: %w", eventlog.ErrUnavailable, plain(a.why))
}

// Commit implements eventlog.Store.
func (a *away) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.Commit(ctx, flush)
}

// Read implements eventlog.Store.
func (a *away) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.Read(ctx, spans, maxBytes)
}

// Changes implements eventlog.Store.
func (a *away) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	s, err := a.use()
	if err != nil {
		return nil, since, err
	}
	return s.Changes(ctx, since)
}

// Seek implements eventlog.Store.
func (a *away) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.Seek(ctx, goals)
}

// Trim implements eventlog.Store.
func (a *away) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.Trim(ctx, trims)
}

// List implements eventlog.Store.
func (a *away) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.List(ctx, prefix, after, limit)
}

// Get implements eventlog.Store.
func (a *away) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s, err := a.use()
	if err != nil {
		return nil, err
	}
	return s.Get(ctx, keys, maxBytes)
}

// Close closes what is open. run must have ended.
func (a *away) Close() error {
	if first := a.first; first != nil && a.found == nil {
		<-first.done
		a.found = first.store
	}
	if a.found == nil {
		return nil
	}
	return a.found.Close()
}
