package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// busyMax is how long a change waits while another process writes.
const busyMax = 10 * time.Second

// conn is one connection, used by one goroutine at a time. It uses the driver without database/sql:
// that avoids a copy of every blob, and a pool that does not know which connection writes.
//
// No statement gets a context that could cancel it halfway. Callers wait, and can give up, only for
// a conn.
type conn struct {
	driver   driver.Conn
	prepared map[string]driver.Stmt
	args     []driver.NamedValue // reused from call to call
}

// connect opens the file at an absolute path. The parameters are those of SQLite's URIs, such as
// mode=ro.
func connect(path, parameters string) (*conn, error) {
	name := url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: parameters}
	c, err := new(sqlite.Driver).Open(name.String())
	if err != nil {
		return nil, err
	}
	return &conn{driver: c, prepared: map[string]driver.Stmt{}}, nil
}

// exec runs a statement. Arguments are int64, string or []byte.
func (c *conn) exec(statement string, args ...any) error {
	stmt, err := c.prepare(statement)
	if err != nil {
		return err
	}
	_, err = stmt.(driver.StmtExecContext).ExecContext(context.Background(), c.bind(args))
	return err
}

// query calls each with every row of a statement. The row is reused; a blob in it is not. errStop
// from each ends the query.
func (c *conn) query(statement string, each func(row []driver.Value) error, args ...any) (err error) {
	stmt, err := c.prepare(statement)
	if err != nil {
		return err
	}
	rows, err := stmt.(driver.StmtQueryContext).QueryContext(context.Background(), c.bind(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	for {
		if err := rows.Next(row); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(row); err == errStop {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// errStop ends a query early.
var errStop = errors.New("stop")

// integers runs a statement that returns one row of integers, or none: then it returns nil.
func (c *conn) integers(statement string, args ...any) (values []int64, err error) {
	err = c.query(statement, func(row []driver.Value) error {
		for _, v := range row {
			n, is := v.(int64)
			if !is {
				return fmt.Errorf("%q returned %v, want integers", statement, row)
			}
			values = append(values, n)
		}
		return errStop
	}, args...)
	return values, err
}

// integer runs a statement that returns one integer.
func (c *conn) integer(statement string) (int64, error) {
	values, err := c.integers(statement)
	if err == nil && len(values) != 1 {
		err = fmt.Errorf("%q returned %d integers, want one", statement, len(values))
	}
	if err != nil {
		return 0, err
	}
	return values[0], nil
}

// retryBusy calls do until no other process holds the lock that it needs. SQLite's own busy handler
// waits up to a tenth of a second at a time; between two busy processes that is too long.
func retryBusy(ctx context.Context, do func() error) error {
	const shortest, longest = 200 * time.Microsecond, 5 * time.Millisecond
	deadline := time.Now().Add(busyMax)
	for wait := shortest; ; wait = min(2*wait, longest) {
		err := do()
		if code(err) != codes.SQLITE_BUSY || time.Now().After(deadline) {
			return err
		}
		select {
		case <-time.After(rand.N(wait)):
		case <-ctx.Done():
			return errors.Join(err, ctx.Err())
		}
	}
}

// rollback ends a transaction, if one is open. If SQLite has ended it already, the error is of no
// use.
func (c *conn) rollback() { _ = c.exec("ROLLBACK") }

// text runs a statement that returns one text.
func (c *conn) text(statement string) (text string, err error) {
	err = c.query(statement, func(row []driver.Value) error {
		text = fmt.Sprint(row[0])
		return errStop
	})
	return text, err
}

func (c *conn) prepare(statement string) (driver.Stmt, error) {
	if stmt := c.prepared[statement]; stmt != nil {
		return stmt, nil
	}
	stmt, err := c.driver.Prepare(statement)
	if err != nil {
		return nil, err
	}
	c.prepared[statement] = stmt
	return stmt, nil
}

func (c *conn) bind(args []any) []driver.NamedValue {
	c.args = c.args[:0]
	for i, v := range args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return c.args
}

func (c *conn) close() error {
	var errs []error
	for _, stmt := range c.prepared {
		errs = append(errs, stmt.Close())
	}
	return errors.Join(append(errs, c.driver.Close())...)
}
