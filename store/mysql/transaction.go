package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// transaction changes the database. It is READ COMMITTED: each statement sees what is committed
// when it begins.
type transaction struct {
	ctx  context.Context
	conn *sql.Conn
}

// change runs do, on a connection of db. do begins a transaction and commits it; it is repeated if
// the server rolled the transaction back, or if the connection broke before COMMIT was sent. When
// ctx ends, that ends the wait for a connection, and answerGrace later the wait for the answer.
func change[T any](ctx context.Context, db *sql.DB, do func(t *transaction) (T, error)) (T, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		var none T
		return none, readFailed(err)
	}
	ctx, cancel := concluding(ctx)
	defer cancel()
	defer func() { _ = conn.Close() }()
	again := func(err error) bool { return rolledBack(err) || lost(err) }
	answer, err := retry(ctx, again, func() (answer T, err error) {
		if answer, err = do(&transaction{ctx, conn}); err == nil {
			return answer, nil
		}
		if code(err) != 0 || known(err) {
			if _, failed := conn.ExecContext(ctx, "ROLLBACK"); failed == nil {
				return answer, err
			}
		}
		discard(conn)
		if !lost(err) {
			return answer, err
		}
		next, failed := db.Conn(ctx)
		if failed != nil {
			return answer, fmt.Errorf("%w: %w, after: %w", eventlog.ErrUnavailable, failed, err)
		}
		conn = next
		return answer, err
	})
	return answer, writeFailed(err)
}

// run runs a text in the transaction.
func (t *transaction) run(what *text) error { return what.run(t.ctx, t.conn, "", "") }

// commit runs the last text and commits.
func (t *transaction) commit(what *text) error {
	last := ";\nCOMMIT"
	if what.sql.Len() == 0 {
		last = "COMMIT"
	}
	return commitFailed(what.run(t.ctx, t.conn, "", last))
}

// begin adds to a text the statements that begin the transaction, lock the guard of the epoch, and
// read the incarnation. A commit that begins an epoch locks the guard exclusively, so afterwards
// nothing of an earlier incarnation is committed.
func begin(t *text, now *incarnation, beginsEpoch bool) {
	lock := "LOCK IN SHARE MODE"
	if beginsEpoch {
		lock = "FOR UPDATE"
	}
	t.add(nil, "START TRANSACTION")
	t.add(ignore, "SELECT id FROM weir_guard WHERE id = 0 "+lock)
	t.add(now.scan, selectIncarnation)
}

func ignore(*sql.Rows) error { return nil }

// guardOf returns the row of weir_guard to lock instead of a key that does not exist. It is the
// same in all processes.
func guardOf(key string) int {
	sum := uint32(2166136261) // FNV-1a
	for i := range len(key) {
		sum = (sum ^ uint32(key[i])) * 16777619
	}
	return 1 + int(sum%guards)
}

// known reports whether the error is one of weir's own: then the connection still works.
func known(err error) bool {
	return errors.Is(err, eventlog.ErrRewound) || errors.Is(err, eventlog.ErrNoPartition) || errors.Is(err, errDamaged) || errors.Is(err, eventlog.ErrTooLarge)
}

// lost reports whether the connection broke before COMMIT was sent: so the transaction certainly
// did not happen.
func lost(err error) bool {
	return code(err) == 0 && !known(err) && !errors.Is(err, eventlog.ErrUnsure) && !errors.Is(err, eventlog.ErrUnavailable) && !errors.Is(err, errNotSent) &&
		!errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)
}
