package s3

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
)

const (
	// dateLag is by how much the server's clock may be ahead of the second that an answer's Date
	// names, beyond that second: fasthttp, on which versitygw is built, reads its clock for Date,
	// sleeps for a second, and reads it again (updateServerDate in its header.go).
	dateLag = 1100 * time.Millisecond
	// exactLag is dateLag for servers that read their clock for each answer. It is not 0 because
	// such a server may be many machines, whose clocks differ a little.
	exactLag = 50 * time.Millisecond
	// drift: two clocks move apart by at most one part in drift. Linux slews a clock by 500 ppm at
	// most (adjtimex).
	drift = 2000
	// tickKnown is how exactly a process wants to know when the server's second begins, beyond the
	// time that an answer takes.
	tickKnown = 20 * time.Millisecond
	// ticksMost bounds the requests with which a process finds out when the server's second begins,
	// after it has opened the store. Each halves what is unknown, which is a second at first.
	ticksMost = 8
	// clockOld is the age of an answer at which a process that makes no other requests asks for the
	// time again.
	clockOld = time.Minute
	// clockSlip: if the machine's wall clock and its monotonic clock have moved apart by more than
	// this since the last answer, the machine slept, and the answer is of no use.
	clockSlip = 100 * time.Millisecond
)

// exact are the servers, by their header Server, whose Date is the time of the answer: "The date
// and time Amazon S3 responded" (Amazon S3 API, common response headers); MinIO uses Go's net/http,
// which calls time.Now for each answer.
var exact = map[string]bool{"AmazonS3": true, "MinIO": true}

// lagOf returns by how much a server's Date may be late.
func lagOf(header http.Header) time.Duration {
	if exact[header.Get("Server")] {
		return exactLag
	}
	return dateLag
}

// clock knows bounds of the server's time, by the Date header of its answers (Cristian's
// algorithm):
//
//	our clock      asked ────────────── came
//	                        answer
//	server's clock     Date ────────── Date + 1s + lag
//
// So the server is ahead of us by at least Date-came, and by at most Date+1s+lag-asked. Bounds of
// several answers are intersected, and widened by the drift since. An answer shortly after the
// server's second began raises the lower bound as far as it can be raised.
//
// Nothing may happen before its time, whichever processes take part: whether a time has come is
// judged by the lower bound, and a time in the future is counted from the upper one.
type clock struct {
	mu       sync.Mutex // guards all below
	known    bool
	low, top time.Duration // bounds of how far the server was ahead of us, at the time in the field at
	at       time.Time     // when the last answer came
	lag      time.Duration // lagOf the server that gave the last answer
	trip     time.Duration // how long the last answer took
}

// machine is when this process started. steady counts from it by the monotonic clock, so that jumps
// of the machine's clock do not matter.
var machine = time.Now()

func steady(t time.Time) time.Time { return machine.Round(0).Add(t.Sub(machine)) }

// observe learns from an answer.
func (c *clock) observe(date, asked, came time.Time, lag time.Duration) {
	low := date.Sub(steady(came))
	top := date.Add(time.Second + lag).Sub(steady(asked))
	c.mu.Lock()
	defer c.mu.Unlock()
	wasLow, wasTop := c.bounds(came)
	switch {
	case !c.known || low > wasTop || top < wasLow: // the first one, or the clock was set
		c.known, c.low, c.top = true, low, top
	default:
		c.low, c.top = max(low, wasLow), min(top, wasTop)
	}
	c.at, c.lag, c.trip = came, lag, came.Sub(asked)
}

// bounds returns by how much the server is ahead of us, at least and at most. The caller holds mu.
func (c *clock) bounds(at time.Time) (low, top time.Duration) {
	apart := max(at.Sub(c.at), 0) / drift
	return c.low - apart, c.top + apart
}

// now returns the bounds of the server's time.
func (c *clock) now() (earliest, latest eventlog.Timestamp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	low, top := c.bounds(now)
	return eventlog.Timestamp(steady(now).Add(low).UnixMilli()), eventlog.Timestamp(steady(now).Add(top).UnixMilli() + 1)
}

// old reports whether the last answer is too old to say what the server's time is now.
func (c *clock) old() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	passed := now.Sub(c.at)
	wall := now.Round(0).Sub(c.at.Round(0)) // Round strips the monotonic reading
	return passed > clockOld || (wall-passed).Abs() > clockSlip
}

// untilTick returns how long to wait before a request that halves what is unknown about when the
// server's second begins; false: that is known well enough.
func (c *clock) untilTick() (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	low, top := c.bounds(now)
	top -= c.lag
	if top-low <= tickKnown+c.trip {
		return 0, false
	}
	arrives := steady(now).Add((low + top) / 2).Add(c.trip / 2) // if it is sent now, by the server's clock
	return arrives.Truncate(time.Second).Add(time.Second).Sub(arrives), true
}

// findTick asks the server for its time until it is known when its second begins.
func (s *Store) findTick() {
	for range ticksMost {
		wait, more := s.clock.untilTick()
		if !more {
			return
		}
		select {
		case <-s.closing.Done():
			return
		case <-time.After(wait):
		}
		s.askTime(s.closing)
	}
}

// askTime makes a request for the sake of its answer's Date.
func (s *Store) askTime(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, requestMax)
	defer cancel()
	_, _, _ = s.bucket.get(ctx, "format", 0, 1) // without an answer, the bounds stay as they are
}
