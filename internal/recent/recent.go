// Package recent keeps what was read from the store last, for callers who accept a value of some
// age. So what each request asks for costs a store call now and then.
package recent

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/longlock"
)

const (
	// patience is how old a value may be for a caller that does not wait while another caller reads
	// a newer one.
	patience = 5 * time.Second
	// AskMax bounds the wait for the store.
	AskMax = 2 * time.Second
	// StaleMax is how long the last value is used while the store is unavailable.
	StaleMax = 10 * time.Minute
)

// Value is read from the store by its callers. Methods may be called concurrently.
type Value[T any] struct {
	what   string
	read   func(context.Context) (T, error)
	logger *slog.Logger

	last   atomic.Pointer[Reading[T]]
	asking longlock.Mutex // held by whoever reads
}

// Reading is a value, and when it was read. It is never changed, only replaced.
type Reading[T any] struct {
	Value T
	At    time.Time // when the store was read
	tried time.Time // when reading the store was last tried
	err   error     // of the last try
}

// New returns a value that the function read reads. The parameter what names it in texts, in the
// plural. The parameter zero stands for the value before the first reading; Get never returns it
// without an error.
func New[T any](what string, zero T, read func(context.Context) (T, error), logger *slog.Logger) *Value[T] {
	v := &Value[T]{what: what, read: read, logger: logger}
	v.last.Store(&Reading[T]{Value: zero})
	return v
}

// Get returns the last reading, and reads again if the last try is longer ago than fresh.
// eventlog.ErrUnavailable: the store is unavailable, and the last reading is older than StaleMax.
//
// However many callers there are, they cost one call of read in each period of length fresh, for
// which one caller waits.
func (v *Value[T]) Get(ctx context.Context, fresh time.Duration) (*Reading[T], error) {
	r := v.last.Load()
	if time.Since(r.tried) < fresh {
		return v.usable(r)
	}
	if !v.asking.TryLock() {
		if time.Since(r.At) < patience || r.err != nil {
			return v.usable(r)
		}
		v.asking.Lock() // for AskMax at most
	}
	defer v.asking.Unlock()
	if r = v.last.Load(); time.Since(r.tried) >= fresh { // no other caller read it meanwhile
		r = v.ask(ctx, r)
		v.last.Store(r)
	}
	return v.usable(r)
}

// Expire makes the next call of Get read again.
func (v *Value[T]) Expire() {
	v.asking.Lock()
	defer v.asking.Unlock()
	old := *v.last.Load()
	old.tried = time.Time{}
	v.last.Store(&old)
}

// ask reads. If the store does not answer, the old value stays.
func (v *Value[T]) ask(ctx context.Context, old *Reading[T]) *Reading[T] {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), AskMax)
	defer cancel()
	value, err := v.read(ctx)
	now := time.Now()
	if err != nil {
		if old.err == nil {
			v.logger.Warn(v.what+" cannot be read; the last known "+v.what+" are used", "err", err, "for", StaleMax)
		}
		return &Reading[T]{Value: old.Value, At: old.At, tried: now, err: err}
	}
	return &Reading[T]{Value: value, At: now, tried: now}
}

func (v *Value[T]) usable(r *Reading[T]) (*Reading[T], error) {
	if r.err != nil && time.Since(r.At) > StaleMax {
		return nil, fmt.Errorf("%w: %s cannot be read: %w", eventlog.ErrUnavailable, v.what, r.err)
	}
	return r, nil
}
