package mysql

import (
	"context"
	"database/sql"

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
	rows, err := retry(ctx, interrupted, func() (*sql.Rows, error) { return c.db.QueryContext(ctx, statement, args...) })
	if err != nil {
		return readFailed(err)
	}
	defer rows.Close()
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
	ctx, cancel := detached(ctx)
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

// Refused reports whether the server refused a statement because the user has no right to it.
func Refused(err error) bool {
	switch code(err) {
	case errDatabaseDenied, errTableDenied, errRoutineDenied, errNoSuper, errSpecialDenied:
		return true
	}
	return false
}
