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

// attemptsMax bounds how often a call is repeated after a transient error.
const attemptsMax = 10

// retry calls do again while again reports that the error makes that safe and useful.
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

// rolledBack reports whether the server rolled the statement back, and may succeed if it is
// repeated.
func rolledBack(err error) bool {
	switch code(err) {
	case "40001", // serialization failure
		"40P01", // deadlock
		"42P01", // a segment was dropped between looking it up and reading it
		"42883", // the function that writes to a segment was dropped between looking it up and calling it
		"55P03": // a lock was not available
		return true
	}
	return false
}

// interrupted reports whether a query that changes nothing may be repeated: it was rolled back, or
// the connection broke. After a restart of the server all connections of a pool look alive until
// they are used.
func interrupted(err error) bool {
	var connecting *pgconn.ConnectError
	switch {
	case errors.Is(err, eventlog.ErrUnavailable), errors.As(err, &connecting), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false // there is no server, or the caller gave up
	case answered(err) && code(err) != "57014":
		return rolledBack(err) || lostInFlight(err)
	}
	return !answered(err)
}

// notSent returns the error of a call that never reached the server.
func notSent(err error) error {
	if code(err) == "53100" { // disk_full
		return noSpace(err)
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// readFailed returns the error of a call that changes nothing, and so can be repeated.
func readFailed(err error) error {
	switch {
	case err == nil, errors.Is(err, eventlog.ErrUnavailable):
		return err
	case code(err) == rewound:
		return fmt.Errorf("%w: %w", eventlog.ErrRewound, err)
	case answered(err) && !isTransient(err):
		return err
	}
	return notSent(err)
}

// writeFailed returns the error of a call that may have changed something.
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
	case isTransient(err):
		return notSent(err)
	}
	return err
}

// answered reports whether the server itself reported the error, and so rolled back, unless
// lostInFlight.
func answered(err error) bool { return code(err) != "" }

// lostInFlight reports whether the server was shutting down or cancelled the statement: the commit
// may be done then, and only the wait for a standby was ended.
func lostInFlight(err error) bool {
	var reported *pgconn.PgError
	if !errors.As(err, &reported) {
		return false
	}
	return reported.SeverityUnlocalized == "FATAL" || reported.SeverityUnlocalized == "PANIC" ||
		strings.HasPrefix(reported.Code, "57P") || strings.HasPrefix(reported.Code, "08") || reported.Code == "57014"
}

// isTransient reports whether the server refused for a reason that may end without a change of the
// request.
func isTransient(err error) bool {
	c := code(err)
	return strings.HasPrefix(c, "53") || // out of disk, memory or connections
		strings.HasPrefix(c, "57") || // shutting down, starting up
		strings.HasPrefix(c, "58") || // the server's disk failed
		strings.HasPrefix(c, "08") ||
		c == "25006" || // read only: a standby, until it is promoted
		c == commitsInProgress // the epoch can begin when these commits have ended
}

// code returns the server's SQLSTATE, or "" if the error is not the server's.
func code(err error) string {
	var reported *pgconn.PgError
	if errors.As(err, &reported) {
		return reported.Code
	}
	return ""
}

// detached returns a context for a statement that cannot be cancelled safely: it outlives the
// caller, for at most answerMax.
func (s *Store) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.bounded(context.WithoutCancel(ctx))
}

// bounded returns a context for a statement that can be repeated, for at most answerMax.
func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.opts.answerMax)
}
