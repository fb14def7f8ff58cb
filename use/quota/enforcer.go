package quota

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// Enforcer measures the clients of one process, and says how long they must pause. Methods may be
// called concurrently. A nil Enforcer knows of no quotas.
type Enforcer struct {
	quotas *Quotas
	set    atomic.Pointer[set] // nil: there are no quotas
	meters *meters
}

// NewEnforcer returns an enforcer that knows of no quotas until Run or Refresh.
func NewEnforcer(quotas *Quotas) *Enforcer { return &Enforcer{quotas: quotas, meters: newMeters()} }

// Run keeps the quotas at most freshFor old until ctx ends, while busy reports that there are
// clients.
func (e *Enforcer) Run(ctx context.Context, busy func() bool) error {
	tick := time.NewTicker(freshFor)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if busy() {
				e.Refresh(ctx)
			}
		}
	}
}

// Refresh learns the quotas if those that it knows are older than half of freshFor, or were changed
// by this process. While the store is unavailable, the last known are used.
func (e *Enforcer) Refresh(ctx context.Context) {
	last, err := e.quotas.table.Recent(ctx, freshFor/2)
	if err != nil {
		return
	}
	next := last.Value
	if next != nil && len(next.limits) == 0 {
		next = nil
	}
	e.set.Store(next)
}

// Active reports whether there are any quotas. It costs one atomic load.
func (e *Enforcer) Active() bool { return e != nil && e.set.Load() != nil }

// Count counts what a client used, and returns for how long it must pause so that its rate gets
// within its quota. 0: it is within, or it has no quota.
func (e *Enforcer) Count(k Kind, c Client, amount float64) (pause time.Duration) {
	if limit, sharer, ok := e.limit(k, c); ok {
		pause, _ = e.meters.count(k, sharer, limit, amount, false)
	}
	return pause
}

// CountWithin counts what a client wants to use, unless it must pause first; then the amount is not
// counted and must not be used. An amount that is larger than the quota of all windows is counted
// if nothing else is; then the client must pause after it.
func (e *Enforcer) CountWithin(k Kind, c Client, amount float64) (pause time.Duration, counted bool) {
	limit, sharer, ok := e.limit(k, c)
	if !ok {
		return 0, true
	}
	return e.meters.count(k, sharer, limit, amount, true)
}

// Mutate counts partitions that a client wants to create or delete. If strict, and the client is
// over its quota already, they are not counted and must be left as they are: it may try again after
// the pause. Otherwise they are counted; unless strict, the client must then pause.
func (e *Enforcer) Mutate(c Client, partitions int, strict bool) (pause time.Duration, counted bool) {
	limit, sharer, ok := e.limit(ControllerMutationRate, c)
	if !ok {
		return 0, true
	}
	return e.meters.take(ControllerMutationRate, sharer, limit, float64(partitions), strict)
}

// Left returns how much a client may use now without a pause; 0 or less: nothing. Kafka's brokers
// take the quota of ten seconds instead, whatever was used before
// (ClientQuotaManager.getMaxValueInQuotaWindow): a consumer may then get half of its quota, because
// an answer for which too little is left is not sent.
func (e *Enforcer) Left(k Kind, c Client) float64 {
	limit, sharer, ok := e.limit(k, c)
	if !ok {
		return math.Inf(1)
	}
	return e.meters.left(k, sharer, limit)
}

func (e *Enforcer) limit(k Kind, c Client) (limit float64, sharer Client, ok bool) {
	if e == nil {
		return 0, Client{}, false
	}
	s := e.set.Load()
	if s == nil {
		return 0, Client{}, false
	}
	return s.limit(k, c)
}
