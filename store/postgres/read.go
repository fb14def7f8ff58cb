package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

var readStatement = wire.Statement{Name: "read", SQL: `
	SELECT span, first_offset, next_offset, held, base_offset, max_time, records, size, bytes
	FROM weir.read($1, $2, $3, $4)`}

var listStatement = wire.Statement{Name: "list", SQL: `SELECT key, version, value, age_us FROM weir.list($1, $2, $3, $4)`}

// Read implements eventlog.Store with one statement, however many spans are asked for.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if len(spans) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	slices, err := retry(ctx, interrupted, func() ([]eventlog.Slice, error) { return s.read(ctx, spans, maxBytes) })
	if err != nil {
		return nil, fmt.Errorf("read %d spans: %w", len(spans), readFailed(err))
	}
	return slices, nil
}

func (s *Store) read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	conn, err := s.others.Acquire(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	defer conn.Release()
	partitions := make([]eventlog.Partition, len(spans))
	from := make([]eventlog.Offset, len(spans))
	size := make([]int64, len(spans))
	slices := make([]eventlog.Slice, len(spans))
	sizes := make([][]int, len(spans)) // that each batch should have
	for i, span := range spans {
		partitions[i], from[i], size[i] = span.Partition, span.From, int64(span.MaxBytes)
		slices[i] = eventlog.Slice{Bounds: eventlog.Bounds{Partition: span.Partition}, Err: eventlog.ErrNoPartition}
	}
	rows := readStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled,
		wire.Int8Array(partitions), wire.Int8Array(from), wire.Int8Array(size), wire.Int8(int64(maxBytes)))
	for rows.NextRow() {
		row := rows.Values()
		n := wire.Integer(row[0]) - 1
		slice := &slices[n]
		if row[4] == nil {
			slice.Err = nil
			slice.Bounds.First, slice.Bounds.Next = eventlog.Offset(wire.Bigint(row[1])), eventlog.Offset(wire.Bigint(row[2]))
			slice.Bounds.Bytes = wire.Bigint(row[3])
			continue
		}
		sizes[n] = addPiece(slice, sizes[n], row)
	}
	if _, err := rows.Close(); err != nil {
		return nil, err
	}
	first := true // nothing came for the spans before, so that a batch must have come for this one
	for i := range slices {
		if missing(spans[i], slices[i], first) {
			if slices[i], err = s.damaged(ctx, conn, spans[i], slices[i]); err != nil {
				return nil, err
			}
		}
		whole(&slices[i], sizes[i])
		first = first && len(sizes[i]) == 0
	}
	return slices, nil
}

// missing tells whether the batch that a span begins in is not there: nothing came, or the batch before it.
func missing(span eventlog.Span, slice eventlog.Slice, first bool) bool {
	if slice.Err != nil || span.MaxBytes <= 0 || span.From < slice.Bounds.First || span.From >= slice.Bounds.Next {
		return false
	}
	if len(slice.Batches) == 0 {
		return first
	}
	b := slice.Batches[0]
	return b.Base+eventlog.Offset(b.Records) <= span.From
}

// damaged is the slice of a span whose first batch is missing. It says where the next one begins that is there, with one trip more.
func (s *Store) damaged(ctx context.Context, conn *pgxpool.Conn, span eventlog.Span, slice eventlog.Slice) (eventlog.Slice, error) {
	d := &eventlog.DamagedError{Partition: span.Partition, From: span.From}
	err := conn.QueryRow(ctx, `SELECT coalesce(min(base_offset), $3) FROM weir.batch WHERE partition_id = $1 AND base_offset > $2`,
		int64(span.Partition), int64(span.From), int64(slice.Bounds.Next)).Scan(&d.Next)
	d.Err = fmt.Errorf("no batch holds offsets [%d, %d)", d.From, d.Next)
	return eventlog.Slice{Bounds: slice.Bounds, Err: d}, err
}

// batchMax bounds what a row may say of its batch's size.
const batchMax = 1 << 30

// addPiece puts one row to the batch that it belongs to: the last, or a new one, whose size it says.
func addPiece(slice *eventlog.Slice, sizes []int, row [][]byte) []int {
	base := eventlog.Offset(wire.Bigint(row[4]))
	n := len(slice.Batches)
	if n == 0 || slice.Batches[n-1].Base != base {
		size := int(wire.Integer(row[7]))
		slice.Batches = append(slice.Batches, eventlog.Placed{Base: base, Batch: eventlog.Batch{
			Partition: slice.Bounds.Partition,
			Records:   wire.Integer(row[6]),
			MaxTime:   eventlog.Timestamp(wire.Bigint(row[5])),
			Bytes:     make([]byte, 0, min(max(size, len(row[8])), batchMax)),
		}})
		sizes = append(sizes, size)
		n++
	}
	b := &slice.Batches[n-1]
	b.Bytes = append(b.Bytes, row[8]...)
	return sizes
}

// whole ends a slice before the first batch that did not come back as it was written: all its pieces, and no more. Where that is the slice's
// first batch, the slice says so.
func whole(slice *eventlog.Slice, sizes []int) {
	for i, b := range slice.Batches {
		if len(b.Bytes) == sizes[i] {
			continue
		}
		if slice.Batches = slice.Batches[:i]; i == 0 {
			slice.Err = &eventlog.DamagedError{Partition: b.Partition, From: b.Base, Next: b.Base + eventlog.Offset(b.Records), Raw: b.Bytes,
				Err: fmt.Errorf("it is %d bytes long, and %d came back", sizes[i], len(b.Bytes))}
		}
		return
	}
}

// Seek implements eventlog.Store. It looks at batches of one run, whose summary says that the answer is in it.
func (s *Store) Seek(ctx context.Context, p eventlog.Partition, goal eventlog.Goal) (eventlog.Offset, error) {
	sql, wanted := `SELECT weir.seek_time($1, $2, $3)`, []any{int64(p), int64(goal.At), int64(goal.From)}
	if goal.Bytes > 0 {
		sql, wanted = `SELECT weir.seek_bytes($1, $2)`, []any{int64(p), goal.Bytes}
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	found, err := retry(ctx, interrupted, func() (*int64, error) {
		var found *int64
		return found, s.others.QueryRow(ctx, sql, wanted...).Scan(&found)
	})
	if err == nil && found == nil {
		err = eventlog.ErrNoPartition
	}
	if err != nil {
		return 0, fmt.Errorf("seek in partition %d: %w", p, readFailed(err))
	}
	return eventlog.Offset(*found), nil
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	high, ok := above(prefix)
	if limit <= 0 || !ok {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	list, err := retry(ctx, interrupted, func() ([]eventlog.KeyValue, error) { return s.list(ctx, prefix, high, after, limit) })
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, readFailed(err))
	}
	return list, nil
}

func (s *Store) list(ctx context.Context, prefix, high, after string, limit int) ([]eventlog.KeyValue, error) {
	conn, err := s.others.Acquire(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	defer conn.Release()
	most := binary.BigEndian.AppendUint32(nil, uint32(min(limit, math.MaxInt32)))
	rows := listStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, []byte(prefix), []byte(high), []byte(after), most)
	var list []eventlog.KeyValue
	for rows.NextRow() {
		row := rows.Values()
		list = append(list, eventlog.KeyValue{
			Key:     string(row[0]),
			Version: eventlog.Version(wire.Bigint(row[1])),
			Value:   bytes.Clone(row[2]),
			Age:     max(0, time.Duration(wire.Bigint(row[3]))*time.Microsecond), // the server's clock may be set back
		})
	}
	_, err = rows.Close()
	return list, err
}

// above returns a text above all keys that begin with a prefix, and below all others that are above it. No key begins with what is not
// UTF-8.
func above(prefix string) (string, bool) {
	if !utf8.ValidString(prefix) || strings.ContainsRune(prefix, 0) {
		return "", false
	}
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch last {
		case utf8.MaxRune:
			continue
		case 0xD7FF:
			last = 0xE000 - 1 // what lies between is no text
		}
		return prefix + string(last+1), true
	}
	return strings.Repeat(string(utf8.MaxRune), keyMax/utf8.UTFMax+1), true
}
