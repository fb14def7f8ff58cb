package postgres

import (
	"context"
	"time"
)

// Restless makes a store sweep all the time.
func Restless(o Options) Options {
	o.sweepPause = 20 * time.Millisecond
	return o
}

// Tidy makes one sweep, now.
func (s *Store) Tidy(ctx context.Context) (done bool, err error) { return s.tidy(ctx) }

// Hasty makes a store wait for answers for a moment only.
func Hasty(o Options) Options {
	o.answerMax = 300 * time.Millisecond
	return o
}

// Place is where the next look begins: what weir.look takes.
func (i *Inbox) Place() (done string, low int64) {
	done, low, _, _ = i.place()
	return done, low
}

// PollsAfter is behind which row a poll looks.
func (i *Inbox) PollsAfter() (after int64) {
	_, _, after, _ = i.place()
	return after
}

// Scripts is how many migrations there are.
func Scripts() int { return len(scripts()) }
