package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// Session is a connection for the SQL of another package, in the same database. It connects when it
// is first used, and closes with its store. Its errors are those of the store:
// eventlog.ErrUnavailable for what was certainly not done, eventlog.ErrUnsure for what may have
// been done.
type Session struct {
	store *Store
	db    *sql.DB
}

// Upgrade is storerow.Upgrade for tables and procedures of another package in the database.
func (c *Session) Upgrade(what string, from, to int, do func() error) error {
	return storerow.Upgrade(c.store.logger, !c.store.noUpgrade, what, from, to, do)
}

// Session returns a session of one connection. Its transactions are READ COMMITTED.
func (s *Store) Session() *Session {
	db := pool(s.config, "READ COMMITTED", 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions = append(s.sessions, db)
	return &Session{s, db}
}

// Client opens connections as a program of another would, which uses the door's procedures. The
// caller closes it.
func (s *Store) Client() *sql.DB { return pool(s.config, "READ COMMITTED", clientsMax) }

// clientsMax bounds the connections of a Client.
const clientsMax = 16

// Query calls each with each row of a statement that changes nothing. Columns are int64, []byte,
// string or nil.
func (c *Session) Query(ctx context.Context, each func(row []any) error, statement string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	rows, err := c.ask(ctx, statement, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	return eachRow(rows, each)
}

// QueryIn is Query, and returns the incarnation of the database in which the rows are, as
// eventlog.Incarnation.Store has it. It returns it also if each failed. It is one trip, too.
func (c *Session) QueryIn(ctx context.Context, each func(row []any) error, statement string, args ...any) (in string, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	rows, err := c.ask(ctx, selectIncarnation+";\n"+statement, args)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var now incarnation
	for rows.Next() {
		if err := now.scan(rows); err != nil {
			return "", readFailed(err)
		}
	}
	if !rows.NextResultSet() {
		return "", readFailed(cmp.Or(rows.Err(), errors.New("the server answered with the incarnation only")))
	}
	return now.inMark().Store, eachRow(rows, each)
}

// ask sends a statement that changes nothing. The caller closes the rows.
func (c *Session) ask(ctx context.Context, statement string, args []any) (*sql.Rows, error) {
	rows, err := retry(ctx, interrupted, func() (*sql.Rows, error) { return c.db.QueryContext(ctx, statement, args...) })
	return rows, readFailed(err)
}

func eachRow(rows *sql.Rows, each func(row []any) error) error {
	columns, err := rows.Columns()
	if err != nil {
		return readFailed(err)
	}
	row, into := make([]any, len(columns)), make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := each(row); err != nil {
			return err
		}
	}
	return readFailed(rows.Err())
}

// Exec runs a statement in a transaction of its own, or several that begin a transaction and commit
// it. If it returns nil, the change is durable.
func (c *Session) Exec(ctx context.Context, statement string, args ...any) error {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return readFailed(err)
	}
	ctx, cancel := concluding(ctx)
	defer cancel()
	_, err = retry(ctx, rolledBack, func() (none struct{}, err error) {
		_, err = conn.ExecContext(ctx, statement, args...)
		return none, err
	})
	if err != nil {
		discard(conn) // it may be in the middle of a transaction
		return writeFailed(commitFailed(err))
	}
	return conn.Close()
}

// ExecIn runs statements in one transaction, if the database is in the incarnation that QueryIn
// returned: otherwise the error is eventlog.ErrRewound, and nothing is changed. If it returns nil,
// the change is durable. It is two trips.
func (c *Session) ExecIn(ctx context.Context, in, statements string, args ...any) error {
	_, err := change(ctx, c.db, func(t *transaction) (none struct{}, err error) {
		var now incarnation
		var first, last text
		first.add(nil, "START TRANSACTION")
		first.add(now.scan, selectIncarnation)
		if err := t.run(&first); err != nil {
			return none, err
		}
		if err := eventlog.StillIn(in, now.inMark().Store); err != nil {
			return none, err
		}
		last.add(nil, statements, args...)
		return none, t.commit(&last)
	})
	return err
}

// Refused reports whether the server refused a statement because the user has no right to it.
func Refused(err error) bool {
	switch code(err) {
	case errDatabaseDenied, errTableDenied, errRoutineDenied, errNoSuper, errSpecialDenied:
		return true
	}
	return false
}
