package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres/wire"
)

var readStatement = wire.Statement{Name: "read", SQL: `
	SELECT span, first_offset, next_offset, held, base_offset, max_time, records, size, bytes
	FROM weir.read($1, $2, $3, $4)
	WHERE weir.still($5, $6, $7)`}

var listStatement = wire.Statement{Name: "list", SQL: `
	SELECT key, version, value, age_us, now_ms
	FROM weir.list($1, $2, $3, $4)
	WHERE weir.still($5, $6, $7)`}

var getStatement = wire.Statement{Name: "get", SQL: `
	SELECT version, value, age_us, now_ms
	FROM weir.get($1, $2)
	WHERE weir.still($3, $4, $5)`}

var seekStatement = wire.Statement{Name: "seek", SQL: `
	SELECT CASE WHEN g.bytes > 0 THEN weir.seek_bytes(g.id, g.bytes) ELSE weir.seek_time(g.id, g.not_older, g.from_offset) END
	FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS g (id, not_older, from_offset, bytes, n)
	WHERE weir.still($5, $6, $7)
	ORDER BY g.n`}

// Read implements eventlog.Store with one statement, however many spans are asked for.
func (s *Store) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	if len(spans) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	slices, err := retry(ctx, interrupted, func() ([]eventlog.Slice, error) { return s.read(ctx, spans, maxBytes) })
	if err != nil {
		return nil, fmt.Errorf("read %d spans: %w", len(spans), readFailed(s.fits(ctx, err)))
	}
	return slices, nil
}

func (s *Store) read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	conn, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	partitions := make([]eventlog.Partition, len(spans))
	from := make([]eventlog.Offset, len(spans))
	size := make([]int64, len(spans))
	slices := make([]eventlog.Slice, len(spans))
	sizes := make([][]int, len(spans)) // the stated size of each batch
	for i, span := range spans {
		partitions[i], from[i], size[i] = span.Partition, span.From, int64(span.MaxBytes)
		slices[i] = eventlog.Slice{Bounds: eventlog.Bounds{Partition: span.Partition}, Err: eventlog.ErrNoPartition}
	}
	told := s.lastIncarnation.now()
	params := [][]byte{wire.Int8Array(partitions), wire.Int8Array(from), wire.Int8Array(size), wire.Int8(int64(maxBytes))}
	rows := readStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, append(params, told.params()...)...)
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
	first := true // no earlier span got a batch, so the next span that asks for one must get one, whatever its size
	for i := range slices {
		if missing(spans[i], slices[i], first) {
			if slices[i], err = s.damaged(ctx, conn, told, spans[i], slices[i]); err != nil {
				return nil, err
			}
		}
		checkSizes(&slices[i], sizes[i])
		first = first && len(sizes[i]) == 0
	}
	return slices, nil
}

// reader returns a connection to read with; eventlog.ErrUpgraded if a newer weir has upgraded the
// schema so that this one cannot use it.
func (s *Store) reader(ctx context.Context) (*pgxpool.Conn, error) {
	if err := s.layout.Usable(); err != nil {
		return nil, err
	}
	conn, err := s.readPool.Acquire(ctx)
	if err != nil {
		return nil, notSent(err)
	}
	return conn, nil
}

// missing reports whether the batch that holds span.From is absent: only an earlier batch came, or
// none did although first is true. first says that no earlier span got a batch: so this span gets
// one, whatever maxBytes is.
func missing(span eventlog.Span, slice eventlog.Slice, first bool) bool {
	if slice.Err != nil || span.MaxBytes <= 0 || span.From < slice.Bounds.First || span.From >= slice.Bounds.Next {
		return false
	}
	if len(slice.Batches) == 0 {
		return first
	}
	b := slice.Batches[0]
	return b.End() <= span.From
}

// damaged returns the slice of a span whose first batch is missing. Its DamagedError says where the
// next batch begins, which costs one more query.
func (s *Store) damaged(ctx context.Context, conn *pgxpool.Conn, told Incarnation, span eventlog.Span, slice eventlog.Slice) (eventlog.Slice, error) {
	d := &eventlog.DamagedError{Partition: span.Partition, From: span.From}
	err := conn.QueryRow(ctx, `
		SELECT coalesce((SELECT min(base_offset) FROM weir.batch WHERE partition_id = $4 AND base_offset > $5), $6)
		WHERE weir.still($1, $2, $3)`,
		append(told.args(), int64(span.Partition), int64(span.From), int64(slice.Bounds.Next))...).Scan(&d.Next)
	d.Err = fmt.Errorf("no batch has the offsets [%d, %d)", d.From, d.Next)
	return eventlog.Slice{Bounds: slice.Bounds, Err: d}, err
}

// batchMax bounds the memory allocated for a batch before its bytes are there: the stated size may
// be damaged.
const batchMax = 1 << 30

// addPiece appends a row's bytes to its batch: the last one, or a new one if the base offset
// differs. It returns the stated sizes.
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

// checkSizes cuts a slice before the first batch whose length is not its stated size. If that is
// the first batch, it sets a DamagedError.
func checkSizes(slice *eventlog.Slice, sizes []int) {
	for i, b := range slice.Batches {
		if len(b.Bytes) == sizes[i] {
			continue
		}
		if slice.Batches = slice.Batches[:i]; i == 0 {
			slice.Err = &eventlog.DamagedError{Partition: b.Partition, From: b.Base, Next: b.End(), Raw: b.Bytes,
				Err: fmt.Errorf("the batch has %d bytes, but the store returned %d", sizes[i], len(b.Bytes))}
		}
		return
	}
}

// Seek implements eventlog.Store with one statement. A run is the batches of a partition in one
// segment, and its row says how far and how new they are. So in each partition Seek finds the run
// that holds the answer by these rows, and reads the batches of at most two runs.
func (s *Store) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	if len(goals) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	found, err := retry(ctx, interrupted, func() ([]eventlog.Found, error) { return s.seek(ctx, goals) })
	if err != nil {
		return nil, fmt.Errorf("seek: %w", readFailed(s.fits(ctx, err)))
	}
	return found, nil
}

func (s *Store) seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	conn, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	partitions, from := make([]eventlog.Partition, len(goals)), make([]eventlog.Offset, len(goals))
	notOlder, size := make([]eventlog.Timestamp, len(goals)), make([]int64, len(goals))
	for i, g := range goals {
		partitions[i], notOlder[i], from[i], size[i] = g.Partition, g.At, g.From, g.Bytes
	}
	params := [][]byte{wire.Int8Array(partitions), wire.Int8Array(notOlder), wire.Int8Array(from), wire.Int8Array(size)}
	rows := seekStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, append(params, s.lastIncarnation.now().params()...)...)
	found := make([]eventlog.Found, 0, len(goals))
	for rows.NextRow() {
		f := eventlog.Found{Err: eventlog.ErrNoPartition}
		if at := rows.Values()[0]; at != nil {
			f = eventlog.Found{At: eventlog.Offset(wire.Bigint(at))}
		}
		if f.At < 0 {
			f = eventlog.Found{Err: fmt.Errorf("partition %d lacks batches: the tables are damaged", goals[len(found)].Partition)}
		}
		found = append(found, f)
	}
	_, err = rows.Close()
	return found, err
}

// List implements eventlog.Store.
func (s *Store) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	high, ok := upperBound(prefix)
	if limit <= 0 || !ok {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	list, err := retry(ctx, interrupted, func() ([]eventlog.KeyValue, error) { return s.list(ctx, prefix, high, after, limit) })
	if err != nil {
		return nil, fmt.Errorf("list keys under %q: %w", prefix, readFailed(s.fits(ctx, err)))
	}
	return list, nil
}

func (s *Store) list(ctx context.Context, prefix, high, after string, limit int) ([]eventlog.KeyValue, error) {
	conn, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	most := binary.BigEndian.AppendUint32(nil, uint32(min(limit, math.MaxInt32)))
	params := append([][]byte{[]byte(prefix), []byte(high), []byte(after), most}, s.lastIncarnation.now().params()...)
	rows := listStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, params...)
	var list []eventlog.KeyValue
	for rows.NextRow() {
		row := rows.Values()
		list = append(list, keyValue(string(row[0]), row[1:]))
	}
	_, err = rows.Close()
	return list, err
}

// Get implements eventlog.Store with one statement.
func (s *Store) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	found, err := retry(ctx, interrupted, func() ([]eventlog.KeyValue, error) { return s.get(ctx, keys, maxBytes) })
	if err != nil {
		return nil, fmt.Errorf("read %d keys: %w", len(keys), readFailed(s.fits(ctx, err)))
	}
	return found, nil
}

func (s *Store) get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	conn, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	asked := slices.Clone(keys)
	for i, key := range asked {
		if checkKey(key) != nil {
			asked[i] = strings.Repeat("-", keyMax+1) // no key is like that: it cannot be stored
		}
	}
	params := append([][]byte{wire.TextArray(asked), wire.Int8(int64(maxBytes))}, s.lastIncarnation.now().params()...)
	rows := getStatement.Run(ctx, conn.Conn().PgConn(), s.opts.Pooled, params...)
	var found []eventlog.KeyValue
	for rows.NextRow() {
		found = append(found, keyValue(keys[len(found)], rows.Values()))
	}
	_, err = rows.Close()
	return found, err
}

// keyValue returns a key's value from its version, value, age and the time of the server; version
// 0: there is no such key.
func keyValue(key string, row [][]byte) eventlog.KeyValue {
	kv := eventlog.KeyValue{Key: key, Version: eventlog.Version(wire.Bigint(row[0]))}
	if kv.Version != 0 {
		kv.Value = bytes.Clone(row[1])
		kv.Age = max(0, time.Duration(wire.Bigint(row[2]))*time.Microsecond) // the server's clock may be set back
		kv.Now = eventlog.Timestamp(wire.Bigint(row[3]))
	}
	return kv
}

// upperBound returns the upper bound of a range scan for prefix: the least text above all keys that
// begin with it. false: no key can begin with prefix, which is not UTF-8, or has a zero byte.
func upperBound(prefix string) (string, bool) {
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
			last = 0xE000 - 1 // U+D800 to U+DFFF are surrogates, which UTF-8 does not have
		}
		return prefix + string(last+1), true
	}
	return strings.Repeat(string(utf8.MaxRune), keyMax/utf8.UTFMax+1), true
}
