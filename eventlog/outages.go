package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// outageMin is the shortest outage that is remembered: half of the shortest session timeout that a group may have.
	outageMin = 500 * time.Millisecond
	// outagesMax bounds how many outages are remembered. Beyond it the two oldest become one.
	outagesMax = 64
)

// outages remembers when this process could not reach its store, or was itself stopped. Whoever evicts others for missing
// heartbeats needs it: during an outage no heartbeat could arrive.
type outages struct {
	poll time.Duration // the follower's interval: the store is not expected to answer more often

	mu      sync.Mutex // guards what follows
	start   time.Time
	last    time.Time // when the store answered last
	failing bool      // it failed since
	past    []outage  // the oldest first
}

// outage is a time in which the store did not answer this process.
type outage struct{ from, to time.Time }

func newOutages(poll time.Duration) *outages {
	now := time.Now()
	return &outages{poll: poll, start: now, last: now}
}

// answered notes that the store answered.
func (o *outages) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(o.last); gap >= outageMin && (o.failing || gap > 2*o.poll) {
		if len(o.past) == outagesMax {
			o.past[1].from = o.past[0].from
			o.past = slices.Delete(o.past, 0, 1)
		}
		o.past = append(o.past, outage{o.last, now})
	}
	o.last, o.failing = now, false
}

// failed notes that the store did not answer.
func (o *outages) failed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = true
}

// Steady returns since when no outage was longer than longest: the end of the newest such outage, with broken true, or the time at which the
// log was opened. During such an outage since is now. A process that was stopped for a while had an outage, too.
func (l *Log) Steady(longest time.Duration) (since time.Time, broken bool) {
	o := l.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(o.last); gap > longest && (o.failing || gap > 2*o.poll) {
		return now, true
	}
	for _, past := range slices.Backward(o.past) {
		if past.to.Sub(past.from) > longest {
			return past.to, true
		}
	}
	return o.start, false
}

// outageObserver is an observer that notes the store's failures as well.
type outageObserver struct {
	Observer
	outages *outages
}

func (w outageObserver) StoreFailed(op string, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnsure) || errors.Is(err, context.DeadlineExceeded) {
		w.outages.failed()
	}
	w.Observer.StoreFailed(op, err)
}
