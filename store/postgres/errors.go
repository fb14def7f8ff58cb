package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
)

// attemptsMax bounds how often a call is made again after it failed for reasons that pass.
const attemptsMax = 10

// retry calls do again while again says of its error that this is safe and may help.
func retry[T any](ctx context.Context, again func(error) bool, do func() (T, error)) (T, error) {
	for attempt := 1; ; attempt++ {
		v, err := do()
		if err == nil || !again(err) {
			return v, err
		}
		if attempt == attemptsMax {
			return v, fmt.Errorf("%w: tried %d times: %w", eventlog.ErrUnavailable, attempt, err)
		}
		select {
		case <-ctx.Done():
			return v, fmt.Errorf("%w: %w, after: %w", eventlog.ErrUnavailable, ctx.Err(), err)
		case <-time.After(rand.N(time.Duration(attempt) * 2 * time.Millisecond)):
		}
	}
}

// undone tells whether the server rolled the statement back and would do it if asked again.
func undone(err error) bool {
	switch code(err) {
	case "40001", // serialization failure
		"40P01", // deadlock
		"42P01", // a segment was dropped between looking it up and reading it
		"42883", // and its writer, between looking it up and writing
		"55P03": // a lock was not to be had
		return true
	}
	return false
}

// interrupted tells whether a question, which changes nothing, may be asked once more: when it was undone, and when the connection broke.
// After a restart of the server all connections of a pool look alive until they are used.
func interrupted(err error) bool {
	var connecting *pgconn.ConnectError
	switch {
	case errors.Is(err, eventlog.ErrUnavailable), errors.As(err, &connecting), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false // there is no server, or nobody who waits
	case answered(err) && code(err) != "57014":
		return undone(err) || lostInFlight(err)
	}
	return !answered(err)
}

// notSent explains the failure of a call that never reached the server.
func notSent(err error) error {
	if code(err) == "53100" { // disk_full
		return noSpace(err)
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// readFailed explains the failure of a call that changes nothing: at worst it is asked again.
func readFailed(err error) error {
	if err == nil || errors.Is(err, eventlog.ErrUnavailable) {
		return err
	}
	if answered(err) && !passing(err) {
		return err
	}
	return notSent(err)
}

// writeFailed explains the failure of a call that may have changed something.
func writeFailed(err error) error {
	switch {
	case err == nil, errors.Is(err, eventlog.ErrUnavailable):
		return err
	case code(err) == rewound:
		return fmt.Errorf("%w: %w", eventlog.ErrRewound, err)
	case pgconn.SafeToRetry(err):
		return notSent(err)
	case !answered(err), lostInFlight(err):
		return fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	case passing(err):
		return notSent(err)
	}
	return err
}

// answered tells whether the server itself reported the failure, and so rolled back, unless lostInFlight.
func answered(err error) bool { return code(err) != "" }

// lostInFlight tells whether a server reported that it goes away, or was told to stop: this may have been while it
// waited for a standby, with the commit already done.
func lostInFlight(err error) bool {
	var reported *pgconn.PgError
	if !errors.As(err, &reported) {
		return false
	}
	return reported.SeverityUnlocalized == "FATAL" || reported.SeverityUnlocalized == "PANIC" ||
		strings.HasPrefix(reported.Code, "57P") || strings.HasPrefix(reported.Code, "08") || reported.Code == "57014"
}

// passing tells whether the server refused for a reason that may pass without a change to the request.
func passing(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, "53") || // out of disk, memory or connections
		strings.HasPrefix(c, "57") || // shutting down, starting up
		strings.HasPrefix(c, "58") || // the disk under it failed
		strings.HasPrefix(c, "08") ||
		c == "25006" // read only: a standby, until it is promoted
}

// code is the server's SQLSTATE, or "" where it was not the server that spoke.
func code(err error) string {
	var reported *pgconn.PgError
	if errors.As(err, &reported) {
		return reported.Code
	}
	return ""
}

// detached returns a context for what was sent and cannot be called back: it outlives the caller, within a bound.
func (s *Store) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.bounded(context.WithoutCancel(ctx))
}

// bounded returns a context for what can be asked again.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.answerMax)
}
