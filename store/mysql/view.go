package mysql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

// view is a transaction that sees one state of the database, and changes nothing.
type view struct {
	ctx   context.Context
	conn  *sql.Conn
	begun bool
	saw   sight
}

// view runs do in a view, and returns when all that do saw is durable. do must end the view (end).
// On an error the connection is closed, and the transaction with it.
func (s *Store) view(ctx context.Context, do func(v *view) error) error {
	conn, err := s.reads.Conn(ctx)
	if err != nil {
		return err
	}
	v := &view{ctx: ctx, conn: conn}
	if err := do(v); err != nil {
		discard(conn)
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return s.awaitDurable(ctx, v.saw)
}

// look is view that also checks the incarnation, and is repeated where that is useful.
func look[T any](ctx context.Context, s *Store, do func(v *view) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerMax)
	defer cancel()
	answer, err := retry(ctx, interrupted, func() (answer T, err error) {
		err = s.view(ctx, func(v *view) error {
			var failed error
			answer, failed = do(v)
			// Also after an error: in another incarnation, tables and partitions may be missing.
			var now incarnation
			var t text
			t.add(now.scan, selectIncarnation)
			if err := v.end(&t); err != nil {
				return errors.Join(failed, err)
			}
			if err := s.lastIncarnation.check(now); err != nil {
				return err
			}
			return failed
		})
		return answer, err
	})
	return answer, readFailed(err)
}

// run begins the transaction if that was not done yet, and runs a text in it.
func (v *view) run(t *text) error { return v.send(t, "") }

// end is run for the last text.
func (v *view) end(t *text) error { return v.send(t, ";\nCOMMIT") }

func (v *view) send(t *text, last string) error {
	begin := ""
	if !v.begun {
		begin = "START TRANSACTION READ ONLY;\n"
		v.begun = true
	}
	return t.run(v.ctx, v.conn, begin, last)
}

// index finds batches in a transaction. It implements storerow.Index.
type index struct {
	run func(*text) error
}

// one runs a statement that answers with at most one row.
func (ix index) one(statement string, args []any, into ...any) (found bool, err error) {
	var t text
	t.add(func(row *sql.Rows) error {
		found = true
		return row.Scan(into...)
	}, statement, args...)
	return found, ix.run(&t)
}

// Holding costs one trip.
func (ix index) Holding(places []storerow.Place) ([]storerow.Batch, error) {
	batches := make([]storerow.Batch, len(places))
	var t text
	for i, p := range places {
		b := &batches[i]
		b.Base = storerow.None
		t.add(func(row *sql.Rows) error {
			return row.Scan(&b.Base, &b.Records, &b.MaxTime, &b.Newest, &b.FirstByte, &b.Size)
		}, "SELECT base_offset, records, max_time, newest, first_byte, size FROM weir_batch WHERE partition_id = ? AND base_offset <= ? ORDER BY base_offset DESC LIMIT 1",
			int64(p.Partition), int64(p.At))
	}
	return batches, ix.run(&t)
}

// NotOlder costs one trip.
func (ix index) NotOlder(places []storerow.Place) ([]eventlog.Offset, error) {
	found := make([]eventlog.Offset, len(places))
	var t text
	for i, p := range places {
		found[i] = storerow.None
		t.add(func(row *sql.Rows) error { return row.Scan(&found[i]) },
			"SELECT base_offset FROM weir_batch WHERE partition_id = ? AND base_offset >= ? AND max_time >= ? ORDER BY base_offset LIMIT 1",
			int64(p.Partition), int64(p.At), int64(p.NotOlder))
	}
	return found, ix.run(&t)
}

func (ix index) Span(id eventlog.Partition, from, to eventlog.Offset) (s storerow.Span, err error) {
	_, err = ix.one(`SELECT count(*), coalesce(min(base_offset), 0), coalesce(max(base_offset + records), 0), coalesce(sum(size), 0), coalesce(min(first_byte), 0), coalesce(max(newest), 0)
		FROM weir_batch WHERE partition_id = ? AND base_offset >= ? AND base_offset < ?`,
		[]any{int64(id), int64(from), int64(to)}, &s.Batches, &s.From, &s.To, &s.Bytes, &s.FirstByte, &s.Newest)
	return s, err
}

// downRows is how many rows Down asks for at once.
const downRows = 10_000

func (ix index) Down(id eventlog.Partition, from eventlog.Offset, yield func(base eventlog.Offset, size int64) bool) error {
	below, more := int64(1)<<62, true
	for more {
		n := 0
		var t text
		t.add(func(row *sql.Rows) error {
			var size int64
			if err := row.Scan(&below, &size); err != nil {
				return err
			}
			n++
			more = more && yield(eventlog.Offset(below), size)
			return nil
		}, "SELECT base_offset, size FROM weir_batch WHERE partition_id = ? AND base_offset >= ? AND base_offset < ? ORDER BY base_offset DESC LIMIT ?", int64(id), int64(from), below, downRows)
		if err := ix.run(&t); err != nil {
			return err
		}
		more = more && n == downRows
	}
	return nil
}
