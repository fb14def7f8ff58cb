package sqlite

import (
	"context"
	"database/sql/driver"

	"github.com/weir-log/weir/store/storerow"
)

// Upgrade is storerow.Upgrade for tables of another package in the file.
func (s *Store) Upgrade(what string, from, to int, do func() error) error {
	return storerow.Upgrade(s.log, !s.noUpgrade, what, from, to, do)
}

// Query calls each with each row of a statement of another package that changes nothing. Columns
// are int64, []byte, string or nil. A row is valid until each returns.
func (s *Store) Query(ctx context.Context, each func(row []any) error, statement string, args ...any) error {
	return s.view(ctx, func(r *conn) error {
		return r.query(statement, func(row []driver.Value) error {
			columns := make([]any, len(row))
			for i, v := range row {
				columns[i] = v
			}
			return each(columns)
		}, args...)
	})
}

// Exec runs statements of another package, all in one transaction. Each gets the same args. If it
// returns nil, the changes are on disk.
func (s *Store) Exec(ctx context.Context, statements []string, args ...any) error {
	return s.change(ctx, func(w *conn) error {
		for _, statement := range statements {
			if err := w.exec(statement, args...); err != nil {
				return err
			}
		}
		return nil
	})
}
