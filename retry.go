package weir

import (
	"cmp"
	"errors"
	"time"

	"github.com/weir-log/weir/internal/chance"
)

// Retry says how often, and after which pauses, an event is delivered again after its handler
// failed. The zero value tries 15 times, with pauses of up to 100 ms, 200 ms and so on up to 30 s.
// All pauses take 100 s on average, so that an outage of a minute makes no dead letters. Later
// events of the partition wait meanwhile. If they must not wait so long, set fewer attempts.
type Retry struct {
	Attempts int           // how often an event is delivered before it becomes a dead letter; default 15, 1: no retry, negative: for ever
	First    time.Duration // longest pause after the first attempt; it doubles with each attempt; default 100 ms
	Max      time.Duration // upper limit of all pauses; default 30 s
}

const (
	attemptsDefault = 15
	pauseFirst      = 100 * time.Millisecond
	pauseMax        = 30 * time.Second
)

func (r Retry) withDefaults() Retry {
	return Retry{Attempts: cmp.Or(r.Attempts, attemptsDefault), First: cmp.Or(r.First, pauseFirst), Max: cmp.Or(r.Max, pauseMax)}
}

// pause returns how long to wait after so many failed attempts: a random time up to the longest
// pause, so that handlers that failed together do not retry together (full jitter).
func (r Retry) pause(attempts int) time.Duration {
	longest := r.Max
	if doublings := attempts - 1; doublings < 32 && r.First < r.Max>>doublings {
		longest = r.First << doublings
	}
	return chance.N(max(longest, 1))
}

// spent reports whether so many failed attempts were the last.
func (r Retry) spent(attempts int) bool { return r.Attempts > 0 && attempts >= r.Attempts }

// isPermanent reports whether a handler's error says that the event must not be tried again.
func isPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}

// failedIndex returns the index of the event that failed, if the handler returned FailedAt with a
// valid index.
func failedIndex(err error, events int) (index int, named bool) {
	var at *failedAtError
	if !errors.As(err, &at) || at.index < 0 || at.index >= events {
		return 0, false
	}
	return at.index, true
}
