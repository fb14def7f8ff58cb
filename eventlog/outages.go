package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// outageMin is the shortest outage that is remembered: half of the shortest session timeout
	// that a group may have.
	outageMin = 500 * time.Millisecond
	// outagesMax bounds how many outages are remembered. Beyond it the two oldest become one.
	outagesMax = 64
)

// outages remembers when this process could not read or write its store, or was itself stopped. A
// process that evicts members for missing heartbeats needs that: during an outage no heartbeat
// could arrive.
type outages struct {
	poll time.Duration // the follower's interval: the store is not expected to answer more often

	mu      sync.Mutex // guards what follows
	start   time.Time
	last    time.Time // when the store answered last
	failing bool      // the store failed after last
	past    []outage  // the oldest first
	stalled time.Time // when the first commit after the last successful one began; zero: none began since
	commit  bool      // a commit is under way
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
	o.heard()
}

// answeredAfter reports whether the store answered a call later than at.
func (o *outages) answeredAfter(at time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last.After(at)
}

func (o *outages) heard() {
	now := time.Now()
	if gap := now.Sub(o.last); gap >= outageMin && (o.failing || gap > 2*o.poll) {
		o.add(outage{o.last, now})
	}
	o.last, o.failing = now, false
}

func (o *outages) add(past outage) {
	if n := len(o.past); n > 0 && o.past[n-1].from.Equal(past.from) {
		o.past[n-1].to = past.to
		return
	}
	if len(o.past) == outagesMax {
		o.past[1].from = o.past[0].from
		o.past = slices.Delete(o.past, 0, 1)
	}
	o.past = append(o.past, past)
}

// outageStore notes commits that wait, or fail, for long: no heartbeat can be written then, though
// reads are answered. A SQLite file has one writer at a time, and that may be a process that was
// stopped. Only one goroutine calls Commit.
type outageStore struct {
	Store
	outages *outages
}

// Unwrap implements Wrapper.
func (s outageStore) Unwrap() Store { return s.Store }

func (s outageStore) Commit(ctx context.Context, entries []Entry) ([]Outcome, error) {
	s.outages.commits()
	outcomes, err := s.Store.Commit(ctx, entries)
	s.outages.committed(err == nil)
	return outcomes, err
}

func (o *outages) commits() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commit = true
	if o.stalled.IsZero() {
		o.stalled = time.Now()
	}
}

func (o *outages) committed(done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.commit = false
	if now := time.Now(); now.Sub(o.stalled) >= outageMin {
		o.add(outage{o.stalled, now})
	}
	if done {
		o.stalled = time.Time{}
		o.heard()
	}
}

// failed notes that the store did not answer.
func (o *outages) failed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failing = true
}

// Steady returns since when there was no outage longer than longest: the end of the newest longer
// outage, with broken true, or the time at which the log was opened. During a longer outage it
// returns the present time, with broken true. A process that was stopped for a while had an outage,
// too.
func (l *Log) Steady(longest time.Duration) (since time.Time, broken bool) {
	o := l.outages
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(o.last); gap > longest && (o.failing || gap > 2*o.poll) {
		return now, true
	}
	if o.commit && now.Sub(o.stalled) > longest {
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
