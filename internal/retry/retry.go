// Package retry says when what failed is tried again: the pauses between attempts, and what the
// error of a caller's handler says about it.
package retry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/chance"
)

// Policy says how often, and after which pauses, something is tried again. Before use it needs its
// defaults.
type Policy struct {
	Attempts int           // how often it is tried; default 15, 1: no retry, negative: for ever
	First    time.Duration // longest pause after the first attempt; it doubles with each attempt; default 100 ms
	Max      time.Duration // upper limit of all pauses; default 30 s
}

// The defaults of a Policy.
const (
	attemptsDefault = 15
	FirstDefault    = 100 * time.Millisecond
	maxDefault      = 30 * time.Second
)

// WithDefaults returns the policy with the defaults in place of zeros.
func (p Policy) WithDefaults() Policy {
	return Policy{Attempts: cmp.Or(p.Attempts, attemptsDefault), First: cmp.Or(p.First, FirstDefault), Max: cmp.Or(p.Max, maxDefault)}
}

// Pause returns how long to wait after the given number of failed attempts: a random time up to the
// longest pause, so that those who failed together do not retry together (full jitter).
func (p Policy) Pause(attempts int) time.Duration {
	longest := p.Max
	if doublings := attempts - 1; doublings < 32 && p.First < p.Max>>doublings {
		longest = p.First << doublings
	}
	return chance.N(max(longest, 1))
}

// Spent reports whether no attempt follows after the given number of failed ones.
func (p Policy) Spent(attempts int) bool { return p.Attempts > 0 && attempts >= p.Attempts }

// Sleep waits for d, and returns false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Permanent marks an error as final: what failed must not be tried again. Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// IsPermanent reports whether an error is marked as final.
func IsPermanent(err error) bool {
	var permanent *permanentError
	return errors.As(err, &permanent)
}

// After marks an error with the pause until the next attempt. After(d, nil) is an error, too.
func After(pause time.Duration, err error) error {
	return &afterError{pause, cmp.Or(err, errors.New("later"))}
}

type afterError struct {
	pause time.Duration
	error
}

func (e *afterError) Unwrap() error { return e.error }

// Wanted returns the pause that an error is marked with, at least 0; false: it is not marked.
func Wanted(err error) (pause time.Duration, is bool) {
	var after *afterError
	if !errors.As(err, &after) {
		return 0, false
	}
	return max(after.pause, 0), true
}

// FailedAt marks which element of a batch failed. FailedAt(i, nil) is nil.
func FailedAt(index int, err error) error {
	if err == nil {
		return nil
	}
	return &failedAtError{index, err}
}

type failedAtError struct {
	index int
	err   error
}

func (e *failedAtError) Error() string {
	return fmt.Sprintf("event %d of the batch: %v", e.index, e.err)
}
func (e *failedAtError) Unwrap() error { return e.err }

// FailedIndex returns the index of the element that failed in a batch of n; false: the error names
// none of them.
func FailedIndex(err error, n int) (index int, named bool) {
	var at *failedAtError
	if !errors.As(err, &at) || at.index < 0 || at.index >= n {
		return 0, false
	}
	return at.index, true
}
