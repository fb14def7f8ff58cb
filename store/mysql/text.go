package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
)

// text is several statements that go to the server in one trip. It ends at the first statement that
// fails.
type text struct {
	sql   strings.Builder
	args  []any
	scans []func(*sql.Rows) error // one for each statement that answers with rows
	bytes int                     // of args, about
}

// add adds a statement. scan is called for each row of its answer; nil: it has no answer.
func (t *text) add(scan func(*sql.Rows) error, statement string, args ...any) {
	if t.sql.Len() > 0 {
		t.sql.WriteString(";\n")
	}
	t.sql.WriteString(statement)
	t.args = append(t.args, args...)
	for _, a := range args {
		t.bytes += sizeOf(a)
	}
	if scan != nil {
		t.scans = append(t.scans, scan)
	}
}

// sizeOf returns how many bytes an argument has at most in the text, before characters in it are
// escaped.
func sizeOf(arg any) int {
	switch a := arg.(type) {
	case []byte:
		return len(a) + len("_binary''")
	case string:
		return len(a) + len("''")
	}
	return len("-9223372036854775808")
}

// list returns (?, ?, …) with n places, for IN and for VALUES.
func list(n int) string { return "(" + strings.Repeat("?, ", n-1) + "?)" }

// run sends before, the text and after in one trip, and hands each row of the answers to its scan.
func (t *text) run(ctx context.Context, conn *sql.Conn, before, after string) error {
	whole := before + t.sql.String() + after
	if len(t.scans) == 0 {
		_, err := conn.ExecContext(ctx, whole, t.args...)
		return err
	}
	answers, err := conn.QueryContext(ctx, whole, t.args...)
	if err != nil {
		return err
	}
	defer answers.Close()
	for i, scan := range t.scans {
		if i > 0 && !answers.NextResultSet() { // it skips statements that answer without rows
			if err := answers.Err(); err != nil {
				return err
			}
			return fmt.Errorf("the server answered with %d results, %d were expected", i, len(t.scans))
		}
		for answers.Next() {
			if err := scan(answers); err != nil {
				return err
			}
		}
		if err := answers.Err(); err != nil {
			return err
		}
	}
	for answers.NextResultSet() { // a later statement may have failed
	}
	return answers.Err()
}

// discard closes a connection instead of giving it back to its pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = conn.Close()
}
