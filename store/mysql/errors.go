package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Numbers of errors: MariaDB's "Error Codes" and MySQL's "Server Error Message Reference" agree on
// these.
const (
	errDiskFull       = 1021
	errHandler        = 1030 // an error of the storage engine; its text has the number, such as 28: no space
	errManyConns      = 1040
	errDatabaseDenied = 1044
	errTableExists    = 1050
	errShutdown       = 1053
	errDuplicate      = 1062
	errTableFull      = 1114
	errTableDenied    = 1142
	errNoTable        = 1146
	errInCommit       = 1180
	errUserConns      = 1203
	errNoVariable     = 1193
	errLockWait       = 1205
	errDeadlock       = 1213
	errUserLimit      = 1226
	errSpecialDenied  = 1227
	errReadOnly       = 1290
	errInterrupted    = 1317
	errRoutineDenied  = 1370
	errTableChanged   = 1412
	errNoSuper        = 1419 // the binary log is on, and creating a routine needs SUPER or log_bin_trust_function_creators
	errNoSemiSync     = 1429
	errReadOnlyMode   = 1836
	errKilled         = 1927 // MariaDB
	errStatementTime  = 1969 // MariaDB: max_statement_time
	errExecutionTime  = 3024 // MySQL: max_execution_time
	errClusterUnready = 1047 // Galera: "WSREP has not yet prepared node for application use"
)

var (
	// errNotSent: there is no connection to the server.
	errNotSent = errors.New("cannot connect")
	// errBusy: somebody else has what is needed.
	errBusy = errors.New("busy")
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

// rolledBack reports whether the transaction certainly did not happen, and may succeed if it is
// repeated.
func rolledBack(err error) bool {
	if errors.Is(err, eventlog.ErrUnsure) {
		return false
	}
	switch code(err) {
	case errDeadlock, errLockWait, errDuplicate, errTableChanged:
		return true
	}
	return false
}

// interrupted reports whether a query that changes nothing may be repeated: it was rolled back, or
// the connection broke. After a restart of the server all connections of a pool look alive until
// they are used.
func interrupted(err error) bool {
	switch {
	case errors.Is(err, errNotSent), errors.Is(err, eventlog.ErrUnavailable), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return false // there is no server, or the caller gave up
	case errors.Is(err, eventlog.ErrRewound), errors.Is(err, eventlog.ErrNoPartition), errors.Is(err, errDamaged):
		return false
	case code(err) == 0:
		return true
	}
	return rolledBack(err) || ending(err)
}

// ending reports whether the server ended the connection or the statement for reasons of its own.
// If that was at a COMMIT, the commit may be done.
func ending(err error) bool {
	switch code(err) {
	case errShutdown, errInCommit, errInterrupted, errKilled, errStatementTime, errExecutionTime, errNoSemiSync:
		return true
	}
	return false
}

// readFailed returns the error of a call that changed nothing.
func readFailed(err error) error {
	if err == nil || errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrRewound) || errors.Is(err, eventlog.ErrNoPartition) || errors.Is(err, errDamaged) {
		return err
	}
	switch code(err) {
	case errDiskFull, errTableFull:
		return fmt.Errorf("%w: %w", eventlog.ErrNoSpace, err)
	case errReadOnly, errReadOnlyMode:
		return fmt.Errorf("%w: %w", eventlog.ErrNotWritable, err)
	case 0, errManyConns, errUserConns, errUserLimit, errClusterUnready, errDeadlock, errLockWait, errTableChanged, errHandler:
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	if ending(err) {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
	}
	return err
}

// commitFailed returns the error of the text that ends with COMMIT. A text ends at its first
// statement that fails. So an error of the server's is that of a statement before COMMIT, and
// nothing was committed, unless ending says otherwise.
func commitFailed(err error) error {
	if err != nil && (code(err) == 0 || ending(err)) {
		return fmt.Errorf("%w: %w", eventlog.ErrUnsure, err)
	}
	return err
}

// writeFailed returns the error of a call that may have changed something.
func writeFailed(err error) error {
	if errors.Is(err, eventlog.ErrUnsure) {
		return err
	}
	return readFailed(err)
}
