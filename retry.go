package weir

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"
)

// Retry says how often, and after which pauses, an event is delivered again whose handler failed. The zero value tries 15 times, with pauses of up
// to 100 ms, 200 ms and so on to 30 s: 100 s all together on average, so that no event is given up because what its handler needs was away for a
// minute. Later events of its partition wait meanwhile; where they must not, ask for fewer attempts.
type Retry struct {
	Attempts int           // how often an event is delivered before it is given up; default 15, 1: no retry, negative: for ever
	First    time.Duration // longest pause after the first attempt, twice as long after each; default 100 ms
	Max      time.Duration // longest pause of all; default 30 s
}

const (
	attemptsDefault = 15
	pauseFirst      = 100 * time.Millisecond
	pauseMax        = 30 * time.Second
)

func (r Retry) withDefaults() Retry {
	return Retry{Attempts: cmp.Or(r.Attempts, attemptsDefault), First: cmp.Or(r.First, pauseFirst), Max: cmp.Or(r.Max, pauseMax)}
}

// pause is how long to wait after the given number of failed attempts: anything up to the longest pause, so that handlers which
// failed together do not come back together (full jitter).
func (r Retry) pause(attempts int) time.Duration {
	longest := r.Max
	if doublings := attempts - 1; doublings < 32 && r.First < r.Max>>doublings {
		longest = r.First << doublings
	}
	return rand.N(max(longest, 1))
}

// spent reports whether an event that failed so often is given up.
func (r Retry) spent(attempts int) bool { return r.Attempts > 0 && attempts >= r.Attempts }

// isPermanent reports whether a handler said that trying again is of no use.
func isPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}

// failedIndex is which event of a batch failed, and whether the handler told. Only the handler's own word counts.
func failedIndex(err error, events int) (index int, told bool) {
	var at *failedAtError
	if !errors.As(err, &at) || at.index < 0 || at.index >= events {
		return 0, false
	}
	return at.index, true
}
