package eventlog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// breakMin is the shortest break in the contact with the store that is kept: half of the shortest session that a group may have.
	breakMin = 500 * time.Millisecond
	// breaksMax bounds how many breaks are kept. Where there were more, the older ones count as one.
	breaksMax = 64
)

// contact remembers when this process could not reach its store, or was itself stopped. Who judges others by their silence needs it: for so
// long nobody could be heard.
type contact struct {
	poll time.Duration // how often the follower looks: nothing is to be expected more often

	mu      sync.Mutex // guards what follows
	start   time.Time
	last    time.Time // when the store answered last
	missing bool      // and failed since
	breaks  []pauseIn // the oldest first
}

// pauseIn is a time without contact.
type pauseIn struct{ from, to time.Time }

func newContact(poll time.Duration) *contact {
	now := time.Now()
	return &contact{poll: poll, start: now, last: now}
}

// heard notes that the store answered.
func (c *contact) heard() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(c.last); gap >= breakMin && (c.missing || gap > 2*c.poll) {
		if len(c.breaks) == breaksMax {
			c.breaks[1].from = c.breaks[0].from
			c.breaks = slices.Delete(c.breaks, 0, 1)
		}
		c.breaks = append(c.breaks, pauseIn{c.last, now})
	}
	c.last, c.missing = now, false
}

// missed notes that the store did not answer.
func (c *contact) missed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing = true
}

// Steady tells since when this process reaches its store without a break longer than longest, and whether it follows such a break: else it
// is since the log was opened. A process that was stopped for a while had a break as well.
func (l *Log) Steady(longest time.Duration) (since time.Time, broken bool) {
	c := l.contact
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if gap := now.Sub(c.last); gap > longest && (c.missing || gap > 2*c.poll) {
		return now, true
	}
	for _, b := range slices.Backward(c.breaks) {
		if b.to.Sub(b.from) > longest {
			return b.to, true
		}
	}
	return c.start, false
}

// watching is an observer that takes note of the contact as well.
type watching struct {
	Observer
	contact *contact
}

func (w watching) StoreFailed(op string, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUnsure) || errors.Is(err, context.DeadlineExceeded) {
		w.contact.missed()
	}
	w.Observer.StoreFailed(op, err)
}
