package sqlfn

import "time"

const (
	// backlogFor is how long the inbox may have a backlog before a warning, and backlogAgain how
	// often the warning is repeated.
	backlogFor   = 10 * time.Second
	backlogAgain = time.Minute
)

// backlog is what waits in the inbox, as this mover knows it.
type backlog struct {
	rows   int64     // an upper bound: the ids from the oldest row that waits to the last id given out
	oldest time.Time // when the oldest row that waits was published; zero: none waits
	since  time.Time // when the inbox was found empty last, or this mover began
	warned time.Time
}

// found notes what a poll found.
func (b *backlog) found(c *chunk) {
	b.rows, b.oldest = 0, time.Time{}
	if c.first.id > 0 {
		b.rows, b.oldest = max(int64(len(c.rows)), c.round.last-c.first.id+1), c.first.time
	}
}

// emptied notes that all that a poll found was moved, and that there was no more.
func (b *backlog) emptied(now time.Time) {
	b.rows, b.oldest, b.since, b.warned = 0, time.Time{}, now, time.Time{}
}

// age is how long the oldest row has waited.
func (b *backlog) age(now time.Time) time.Duration {
	if b.oldest.IsZero() {
		return 0
	}
	return max(0, now.Sub(b.oldest))
}

// warns reports whether it is time for a warning.
func (b *backlog) warns(now time.Time) bool {
	if b.since.IsZero() {
		b.since = now
	}
	if now.Sub(b.since) < backlogFor || now.Sub(b.warned) < backlogAgain {
		return false
	}
	b.warned = now
	return true
}
