package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// Upgrade is storerow.Upgrade for tables of another package in the file.
func (s *Store) Upgrade(what string, from, to int, do func() error) error {
	return storerow.Upgrade(s.log, !s.noUpgrade, what, from, to, do)
}

// Query calls each with each row of a statement of another package that changes nothing. Columns
// are int64, []byte, string or nil. A row is valid until each returns.
func (s *Store) Query(ctx context.Context, each func(row []any) error, statement string, args ...any) error {
	return s.view(ctx, func(r *conn) error { return r.eachRow(each, statement, args) })
}

// QueryIn is Query, and returns the incarnation of the file in which the rows are, as
// eventlog.Incarnation.Store has it. It returns it also if each failed.
func (s *Store) QueryIn(ctx context.Context, each func(row []any) error, statement string, args ...any) (in string, err error) {
	err = s.view(ctx, func(r *conn) error {
		now, err := s.incarnation(r)
		if err == nil {
			err = s.upgraded(r)
		}
		if err != nil {
			return err
		}
		in = now.Store
		return r.eachRow(each, statement, args)
	})
	return in, err
}

func (c *conn) eachRow(each func(row []any) error, statement string, args []any) error {
	return c.query(statement, func(row []driver.Value) error {
		columns := make([]any, len(row))
		for i, v := range row {
			columns[i] = v
		}
		return each(columns)
	}, args...)
}

// Exec runs statements of another package, all in one transaction. Each gets the same args. If it
// returns nil, the changes are on disk.
func (s *Store) Exec(ctx context.Context, statements []string, args ...any) error {
	return s.change(ctx, func(w *conn) error { return w.execEach(statements, args) })
}

// ExecIn is Exec, if the file is in the incarnation that QueryIn returned: otherwise the error is
// eventlog.ErrRewound, and nothing is changed.
func (s *Store) ExecIn(ctx context.Context, in string, statements []string, args ...any) error {
	return s.change(ctx, func(w *conn) error {
		now, err := s.incarnation(w)
		if err == nil {
			err = s.upgraded(w)
		}
		if err == nil {
			err = eventlog.StillIn(in, now.Store)
		}
		if err != nil {
			return err
		}
		return w.execEach(statements, args)
	})
}

func (c *conn) execEach(statements []string, args []any) error {
	for _, statement := range statements {
		if err := c.exec(statement, args...); err != nil {
			return err
		}
	}
	return nil
}
