package everystore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Replica is a store that may only be read, in front of one that others write and close.
type Replica struct {
	eventlog.Store
	Tried atomic.Int64 // how many commits and trims it refused
}

// Commit refuses.
func (r *Replica) Commit(context.Context, []eventlog.Entry) ([]eventlog.Outcome, error) {
	r.Tried.Add(1)
	return nil, eventlog.ErrReadOnly
}

// Trim refuses.
func (r *Replica) Trim(context.Context, []eventlog.Trim) ([]error, error) {
	r.Tried.Add(1)
	return nil, eventlog.ErrReadOnly
}

// Replica implements eventlog.Replica.
func (*Replica) Replica() (time.Duration, bool) { return 1500 * time.Millisecond, true }

// Close leaves the store open.
func (*Replica) Close() error { return nil }
