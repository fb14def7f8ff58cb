package inbox

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/seed"
)

// shownEvent is a row of weir_events.
type shownEvent struct {
	Offset      int64
	Time        *int64
	Key, Value  []byte
	Headers     any
	Compression *string
	Records     int64
}

func (e shownEvent) String() string {
	text := fmt.Sprintf("%d, %d records, key %.100q (nil: %t), value %.100q (nil: %t), headers %#v", e.Offset, e.Records, e.Key, e.Key == nil, e.Value, e.Value == nil, e.Headers)
	if e.Time != nil {
		text += fmt.Sprint(", time ", *e.Time)
	}
	if e.Compression != nil {
		text += ", compressed by " + *e.Compression
	}
	return text
}

// querier is a connection or a transaction of a program.
type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
}

// read calls weir_events.
func read(db querier, topic string, partition int, from, most int64) ([]shownEvent, error) {
	return readRows(db.Query("CALL weir_events(?, ?, ?, ?)", topic, partition, from, most))
}

func readRows(rows *sql.Rows, err error) (events []shownEvent, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e shownEvent
		var headers []byte
		if err := rows.Scan(&e.Offset, &e.Time, &e.Key, &e.Value, &headers, &e.Compression, &e.Records); err != nil {
			return nil, err
		}
		if headers != nil {
			if err := json.Unmarshal(headers, &e.Headers); err != nil {
				return nil, fmt.Errorf("headers %q: %w", headers, err)
			}
		}
		events = append(events, e)
	}
	for rows.NextResultSet() { // an error of a later statement of the procedure
	}
	return events, rows.Err()
}

// readOn reads a partition page by page, from an offset to its end.
func (r *rig) readOn(topic string, partition int, from, most int64) (events []shownEvent) {
	r.Helper()
	for {
		page, err := read(r.db, topic, partition, from, most)
		if err != nil {
			r.Fatal(err)
		}
		if len(page) == 0 {
			return events
		}
		if int64(len(page)) > most {
			r.Fatalf("%d events, asked for %d", len(page), most)
		}
		events = append(events, page...)
		from = page[len(page)-1].Offset + page[len(page)-1].Records
	}
}

// shown is the row that a record should be.
func shown(rec batch.Record) shownEvent {
	e := shownEvent{Offset: rec.Offset, Key: rec.Key, Value: rec.Value, Records: 1}
	if rec.Timestamp >= 0 {
		e.Time = &rec.Timestamp
	}
	object := map[string]any{}
	for _, h := range rec.Headers {
		name := headerText([]byte(h.Key)).(string)
		value := headerText(h.Value)
		if before, is := object[name]; !is {
			object[name] = value
		} else if list, is := before.([]any); is {
			object[name] = append(list, value)
		} else {
			object[name] = []any{before, value}
		}
	}
	if len(rec.Headers) <= 1000 {
		e.Headers = object
	}
	return e
}

func headerText(b []byte) any {
	switch {
	case b == nil:
		return nil
	case !utf8.Valid(b) || bytes.HasPrefix(b, []byte(`\x`)):
		return `\x` + hex.EncodeToString(b)
	}
	return string(b)
}

func sameEvents(t testing.TB, got, want []shownEvent) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range got {
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Fatalf("event %d is\n%v, want\n%v", i, got[i], want[i])
		}
	}
}

// put appends a batch that is sealed already to a partition.
func (r *rig) put(p eventlog.Partition, raw []byte) {
	r.Helper()
	h, err := batch.Parse(raw)
	if err != nil {
		r.Fatal(err)
	}
	_, err = r.log.Append(r.Context(), eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: h.Offsets(), MaxTime: eventlog.Timestamp(h.MaxTimestamp), Bytes: raw}}})
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) partition(topic string, number int) eventlog.Partition {
	r.Helper()
	about, err := r.log.Topic(r.Context(), topic)
	if err != nil {
		r.Fatal(err)
	}
	return about.Partitions[number]
}

func sealed(t testing.TB, codec batch.Codec, records ...batch.Record) []byte {
	t.Helper()
	raw, err := batch.Seal(records, codec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// marker is a control batch as Kafka's brokers write it: it ends a transaction.
func marker(t testing.TB) []byte {
	t.Helper()
	raw := sealed(t, batch.None, batch.Record{Timestamp: 5, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)})
	raw[22] |= 1<<5 | 1<<4 // control, transactional
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestControlBatchesAreNotShown(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 0)
	r.put(p, marker(t))
	r.put(p, sealed(t, batch.None, make([]batch.Record, 2)...)) // 1, 2
	r.put(p, marker(t))
	r.put(p, marker(t))
	r.put(p, sealed(t, batch.Gzip, batch.Record{})) // 5
	r.put(p, marker(t))
	for _, most := range []int64{1, 2, 100} {
		for from, want := range [][]int64{{1, 2, 5}, {1, 2, 5}, {2, 5}, {5}, {5}, {5}, nil, nil} {
			var got []int64
			for _, e := range r.readOn("orders", 0, int64(from), most) {
				got = append(got, e.Offset)
			}
			if !slices.Equal(got, want) {
				t.Errorf("from %d, %d at a time: offsets %d, want %d", from, most, got, want)
			}
		}
	}
	for _, want := range [][]int64{{1, 2}, {5}, nil, nil} {
		if got := r.consumeOnce("billing", "orders", 0, 2, true); !slices.Equal(got, want) {
			t.Errorf("a consumer gets offsets %d, want %d", got, want)
		}
	}
	var at int64
	if err := r.db.QueryRow("SELECT next_offset FROM weir_position").Scan(&at); err != nil || at != 7 {
		t.Errorf("the consumer is at offset %d, %v; want 7, past the last control batch", at, err)
	}
}

// odd are the records that are easily told wrongly.
func odd() []batch.Record {
	const at = 1_700_000_000_123
	headers := func(namesAndValues ...string) (list []batch.RecordHeader) {
		for i := 0; i < len(namesAndValues); i += 2 {
			list = append(list, batch.RecordHeader{Key: namesAndValues[i], Value: []byte(namesAndValues[i+1])})
		}
		return list
	}
	return []batch.Record{
		{Timestamp: at},
		{Timestamp: at, Key: []byte{}, Value: []byte{}},
		{Timestamp: at - 3_600_000, Key: []byte("k")},
		{Timestamp: at + 3_600_000, Value: []byte(`{"id": 7, "name": "Ærøskøbing ☂"}`)},
		{Timestamp: batch.NoTimestamp, Key: []byte{0xff, 0x00, 0xfe}, Value: []byte("a zero \x00 byte")},
		{Timestamp: at, Value: bytes.Repeat([]byte("large "), 20_000), Headers: append(headers("source", "billing", "", "of no name", "empty", ""), batch.RecordHeader{Key: "null"})},
		{Timestamp: at, Value: []byte("headers"), Headers: append(headers("again", "1", "once", "☂ 😀", "again", "2", "bytes", "\x00\xff", "looks like bytes", `\x41`, "a surrogate", "\xed\xa0\x80", "none", "\ud7ff\uffff", "\xff", "of no text",
			"escaped", "\"\\\n\x01\x00", "Again", "other", "again ", "other"), batch.RecordHeader{Key: "again"})},
		{Timestamp: at, Value: []byte("many headers"), Headers: slices.Repeat([]batch.RecordHeader{{Key: "a"}, {Key: "b", Value: []byte("c")}}, 500)},
		{Timestamp: at, Value: []byte("more than SQL shows"), Headers: slices.Repeat([]batch.RecordHeader{{Key: "a"}}, 1001)},
		{Timestamp: at, Value: []byte("the last")},
	}
}

// What SQL shows of an event is what the log holds, whatever is in it. A batch that has several
// rows of weir_piece is one of them.
func TestSQLReadsWhatWasPublished(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 1)
	var want []shownEvent
	put := func(records []batch.Record) {
		for i := range records {
			records[i].Offset = int64(len(want))
			want = append(want, shown(records[i]))
		}
		r.put(p, sealed(t, batch.None, records...))
	}
	put(odd())
	large := make([]batch.Record, 9)
	for i := range large {
		large[i] = batch.Record{Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte{byte('a' + i)}, 100_000)}
	}
	put(large)
	put(odd())
	for _, most := range []int64{1, 3, 10_000} {
		sameEvents(t, r.readOn("orders", 1, 0, most), want)
	}
	sameEvents(t, r.readOn("orders", 0, 0, 10), nil)
}

// Headers can be much larger as JSON than they are in the log. Those of an event that would not fit
// into a packet are not shown; those of many events end a page before it would not fit. In either
// case nothing is left out, also not by the calls that come after on the same connection.
func TestHeadersThatDoNotFitIntoAPacketHideNoEvent(t *testing.T) {
	r := newRig(t, mytest.Start(t, "--max-allowed-packet=4M").URL())
	r.db.SetMaxOpenConns(1)
	p := r.partition("orders", 0)
	var records []batch.Record
	of := func(text string, size int) {
		value := []byte(strings.Repeat(text, size/len(text)))
		records = append(records, batch.Record{Value: fmt.Append(nil, len(records)), Headers: []batch.RecordHeader{{Key: "a", Value: value}}})
	}
	var want []shownEvent
	put := func() {
		for i := range records {
			records[i].Offset = int64(len(want))
			e := shown(records[i])
			if len(records[i].Headers[0].Value) > 4<<20/8 {
				e.Headers = nil
			}
			want = append(want, e)
		}
		r.put(p, sealed(t, batch.None, records...))
		records = nil
	}
	for _, text := range []string{"\x01", "a", "\"", "\xff", "☂"} {
		for _, size := range []int{5, 500_000, 700_000, 3_000_000, 5} {
			of(text, size)
			put()
		}
		for range 40 {
			of(text, 20_000)
		}
		put()
	}
	sameEvents(t, r.readOn("orders", 0, 0, 100), want)
	var all []int64
	for len(all) < len(want) {
		next := r.consumeOnce("billing", "orders", 0, 100, true)
		if len(next) == 0 {
			t.Fatalf("consumed %d of %d events", len(all), len(want))
		}
		all = append(all, next...)
	}
	for i, offset := range all {
		if offset != int64(i) {
			t.Fatalf("event %d is consumed where %d is expected", offset, i)
		}
	}
}

func randomRecords(random *rand.Rand) []batch.Record {
	some := func(most int) []byte {
		switch n := random.IntN(10); {
		case n == 0:
			return nil
		case n < 8:
			text := make([]byte, random.IntN(most))
			for i := range text {
				text[i] = byte(' ' + random.IntN(95))
			}
			return text
		default:
			raw := make([]byte, random.IntN(most))
			for i := range raw {
				raw[i] = byte(random.UintN(256))
			}
			return raw
		}
	}
	sizes := []int{2, 70, 200, 9000}
	records := make([]batch.Record, 1+random.IntN(20))
	at, spread := random.Int64N(1<<41), int64(1)<<random.IntN(42)
	for i := range records {
		records[i] = batch.Record{
			Timestamp: max(batch.NoTimestamp, at+random.Int64N(spread)-spread/2),
			Key:       some(sizes[random.IntN(len(sizes))]), Value: some(sizes[random.IntN(len(sizes))]),
		}
		for range random.IntN(4) {
			records[i].Headers = append(records[i].Headers, batch.RecordHeader{Key: fmt.Sprint("h", random.IntN(3)), Value: some(5)})
		}
	}
	return records
}

// Batches of all kinds, some compressed, some compacted, some with the log's time: SQL reads from
// any offset, and any number, as package batch decodes them.
func TestSQLReadsRandomBatchesAsTheLogDoes(t *testing.T) {
	random := seed.Random(t)
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 0)
	var want []shownEvent
	var base int64
	for range 60 {
		records := randomRecords(random)
		last := int64(len(records) - 1)
		for i := range records {
			records[i].Offset = base + int64(i)
		}
		codec := batch.None
		if random.IntN(5) == 0 {
			codec = batch.Codec(1 + random.IntN(4))
		}
		raw := sealed(t, codec, records...)
		appendTime := random.IntN(4) == 0
		if appendTime {
			batch.StampAppendTime(raw, random.Int64N(1<<41))
		}
		r.put(p, raw)
		if random.IntN(3) == 0 { // compaction leaves some records, or none
			last += base
			kept := slices.DeleteFunc(slices.Clone(records), func(batch.Record) bool { return random.IntN(2) == 0 })
			horizon := random.Int64N(2) * random.Int64N(1<<40)
			raw = r.compact(batch.Compacted{Base: base, Last: last, Records: kept, Codec: codec, AppendTime: appendTime, Horizon: horizon, EmptyTime: records[0].Timestamp}, p)
		}
		h, err := batch.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if h.Attributes.Codec() != batch.None {
			name := h.Attributes.Codec().String()
			e := shownEvent{Offset: base, Compression: &name, Records: int64(h.Offsets())}
			if h.MaxTimestamp >= 0 {
				e.Time = &h.MaxTimestamp
			}
			want = append(want, e)
		} else {
			batch.Patch(raw, base, 0)
			for rec, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
				if err != nil {
					t.Fatal(err)
				}
				want = append(want, shown(rec))
			}
		}
		base += int64(h.Offsets())
	}
	sameEvents(t, r.readOn("orders", 0, 0, 10_000), want)
	sameEvents(t, r.readOn("orders", 0, 0, 7), want)
	for range 50 {
		from, most := random.Int64N(base+2), 1+random.Int64N(50)
		var rest []shownEvent
		for _, e := range want {
			if e.Offset+e.Records <= from || int64(len(rest)) == most {
				continue
			}
			if e.Offset < from {
				e.Records, e.Offset = e.Offset+e.Records-from, from
			}
			rest = append(rest, e)
		}
		got, err := read(r.db, "orders", 0, from, most)
		if err != nil {
			t.Fatal(err)
		}
		sameEvents(t, got, rest)
	}
}

// compact puts a batch in the place of those that have its offsets, as compaction does.
func (r *rig) compact(c batch.Compacted, p eventlog.Partition) (raw []byte) {
	r.Helper()
	raw, err := c.Seal()
	if err != nil {
		r.Fatal(err)
	}
	h, err := batch.Parse(raw)
	if err != nil {
		r.Fatal(err)
	}
	replace := eventlog.Replace{Partition: p, From: eventlog.Offset(c.Base), To: eventlog.Offset(c.Last + 1), Batches: []eventlog.Batch{{Partition: p, Records: h.Offsets(), Bytes: raw}}}
	put := eventlog.Put{Key: eventlog.ReplacedKey(p), Version: eventlog.Version(0).Next(), Value: []byte("{}")}
	outcomes, err := r.store.Commit(r.Context(), []eventlog.Entry{{Replaces: []eventlog.Replace{replace}, Puts: []eventlog.Put{put}}})
	if err != nil || outcomes[0].Err != nil {
		r.Fatal(err, outcomes)
	}
	return raw
}

// Reading begins at the first event that is left; over offsets that compaction removed it goes on;
// past the end there is nothing.
func TestSQLReadsFromWhatIsLeft(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 0)
	for range 4 {
		r.put(p, sealed(t, batch.None, make([]batch.Record, 10)...))
	}
	offsets := func(from int64) (all []int64) {
		for _, e := range r.readOn("orders", 0, from, 4) {
			all = append(all, e.Offset)
		}
		return all
	}
	for _, first := range []eventlog.Offset{0, 3, 10, 19} {
		if err := r.log.Trim(t.Context(), p, first); err != nil {
			t.Fatal(err)
		}
		if got := offsets(0); len(got) != 40-int(first) || got[0] != int64(first) || got[len(got)-1] != 39 {
			t.Errorf("trimmed below %d: %v", first, got)
		}
	}
	r.compact(batch.Compacted{Base: 20, Last: 29}, p)
	if got, want := fmt.Sprint(offsets(15)), "[19 30 31 32 33 34 35 36 37 38 39]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, from := range []int64{40, 41, math.MaxInt64} {
		if got := offsets(from); got != nil {
			t.Errorf("from %d: %v", from, got)
		}
	}
}

// While two processes append, a reader that goes on from its last event sees each event once, in
// order.
func TestAReaderInSQLMissesNothing(t *testing.T) {
	url := everystore.URL(t, "mysql")
	r := newRig(t, url)
	const writers, each = 2, 150
	p := r.partition("orders", 0)
	var wg sync.WaitGroup
	for w := range writers {
		store := everystore.Open(t, url)
		wg.Go(func() {
			for n := range each {
				raw := sealed(t, batch.None, batch.Record{Key: fmt.Append(nil, w), Value: fmt.Append(nil, n)}, batch.Record{Key: fmt.Append(nil, w), Value: fmt.Append(nil, n)})
				outcomes, err := store.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: p, Records: 2, Bytes: raw}}}})
				if err != nil || outcomes[0].Err != nil {
					t.Error(err, outcomes)
					return
				}
			}
		})
	}
	next, counts := int64(0), map[string]int{}
	for deadline := time.Now().Add(time.Minute); next < 2*writers*each; {
		if time.Now().After(deadline) {
			t.Fatalf("%d events after a minute", next)
		}
		page, err := read(r.db, "orders", 0, next, 5)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page {
			if e.Offset != next {
				t.Fatalf("event %d comes where %d is expected", e.Offset, next)
			}
			if want := fmt.Sprint(counts[string(e.Key)] / 2); string(e.Value) != want {
				t.Fatalf("event %d of writer %s is %s, want %s", e.Offset, e.Key, e.Value, want)
			}
			counts[string(e.Key)]++
			next++
		}
	}
	wg.Wait()
}

// While retention deletes batches and compaction replaces them, a reader gets what is left, and no
// error: under READ COMMITTED, where its statements see different states of the log.
func TestAReaderInSQLMeetsRetentionAndCompaction(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	const batches = 100
	p := r.partition("orders", 0)
	for range batches {
		r.put(p, sealed(t, batch.None, make([]batch.Record, 2)...))
	}
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for first := int64(0); first < 2*(batches-1); first += 2 {
			for n := range 4 {
				r.compact(batch.Compacted{Base: first, Last: first + 1, Records: []batch.Record{{Offset: first + 1, Value: bytes.Repeat([]byte("x"), n)}}}, p)
			}
			if err := r.log.Trim(t.Context(), p, eventlog.Offset(first+2)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"); err != nil {
		t.Fatal(err)
	}
	for first := int64(0); ; {
		page, err := read(connQuerier{conn, t}, "orders", 0, 0, 3)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 || page[0].Offset < first {
			t.Fatalf("%v where the first event was %d", page, first)
		}
		first = page[0].Offset
		select {
		case <-changed:
			return
		default:
		}
	}
}

type connQuerier struct {
	*sql.Conn
	t *testing.T
}

func (c connQuerier) Query(query string, args ...any) (*sql.Rows, error) {
	return c.QueryContext(c.t.Context(), query, args...)
}

// A transaction that has read events holds nobody up.
func TestReadingEventsLocksNothing(t *testing.T) {
	for _, isolation := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		r := newRig(t, everystore.URL(t, "mysql"))
		p := r.partition("orders", 0)
		r.put(p, sealed(t, batch.None, make([]batch.Record, 10)...))
		tx, err := r.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: isolation})
		if err != nil {
			t.Fatal(err)
		}
		if events, err := read(tx, "orders", 0, 0, 100); err != nil || len(events) != 10 {
			t.Fatal(len(events), err)
		}
		if _, err := tx.Exec("CALL weir_partitions(NULL)"); err != nil {
			t.Fatal(err)
		}
		var connection, locked int
		if err := tx.QueryRow("SELECT CONNECTION_ID()").Scan(&connection); err != nil {
			t.Fatal(err)
		}
		if err := r.db.QueryRow("SELECT COALESCE(SUM(trx_rows_locked), 0) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = ?", connection).Scan(&locked); err != nil {
			t.Fatal(err)
		}
		if locked != 0 {
			t.Fatalf("%v: the transaction locks %d rows", isolation, locked)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if _, err := r.log.Append(ctx, eventlog.Entry{Batches: []eventlog.Batch{{Partition: p, Records: 1, Bytes: sealed(t, batch.None, batch.Record{})}}}); err != nil {
			t.Fatalf("%v: append while the transaction is open: %v", isolation, err)
		}
		cancel()
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// Reading writes nothing: not to the binary log, and it is possible in a transaction that is
// read-only.
func TestReadingEventsWritesNothing(t *testing.T) {
	server := mytest.Start(t, "--log-bin", "--server-id=1", "--binlog-format=MIXED")
	r := newRig(t, server.URL())
	r.put(r.partition("orders", 0), sealed(t, batch.None, make([]batch.Record, 10)...))
	position := func() string {
		logs, err := r.db.Query("SHOW BINARY LOGS")
		if err != nil {
			t.Fatal(err)
		}
		defer logs.Close()
		columns, err := logs.Columns()
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for logs.Next() {
			row := make([]sql.RawBytes, len(columns)) // a name and a size, and on MySQL more
			targets := make([]any, len(columns))
			for i := range row {
				targets[i] = &row[i]
			}
			if err := logs.Scan(targets...); err != nil {
				t.Fatal(err)
			}
			all += fmt.Sprintf("%s ", row)
		}
		if err := logs.Err(); err != nil || all == "" {
			t.Fatalf("the binary logs are %q, %v", all, err)
		}
		return all
	}
	before := position()
	tx, err := r.db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if events, err := read(tx, "orders", 0, 0, 100); err != nil || len(events) != 10 {
		t.Fatal(len(events), err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if after := position(); after != before {
		t.Errorf("the binary log went from %s to %s", before, after)
	}
}

func TestSQLRefusesToReadWhatIsNotThere(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	r.put(r.partition("orders", 0), sealed(t, batch.None, batch.Record{}))
	for name, c := range map[string]struct {
		args []any
		want string
	}{
		"unknown topic":     {[]any{"nobody", 0, 0, 1}, "topic 'nobody' does not exist"},
		"no topic":          {[]any{nil, 0, 0, 1}, "topic is NULL"},
		"partition 2 of 2":  {[]any{"orders", 2, 0, 1}, "partition 2 does not exist: the topic has 2"},
		"partition -1":      {[]any{"orders", -1, 0, 1}, "partition -1 does not exist"},
		"no partition":      {[]any{"orders", nil, 0, 1}, "partition_number is NULL"},
		"offset -1":         {[]any{"orders", 0, -1, 1}, "from_offset is -1"},
		"no offset":         {[]any{"orders", 0, nil, 1}, "from_offset is NULL"},
		"0 events":          {[]any{"orders", 0, 0, 0}, "max_events is 0"},
		"too many events":   {[]any{"orders", 0, 0, 10_001}, "max_events is 10001"},
		"no limit":          {[]any{"orders", 0, 0, nil}, "max_events is NULL"},
		"long unknown name": {[]any{strings.Repeat("n", 249), 0, 0, 1}, "does not exist"},
	} {
		if _, err := r.db.Exec("CALL weir_events(?, ?, ?, ?)", c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want an error about %q", name, err, c.want)
		}
	}
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, isolation := range []string{"SERIALIZABLE", "READ UNCOMMITTED"} {
		if _, err := conn.ExecContext(t.Context(), "SET SESSION TRANSACTION ISOLATION LEVEL "+isolation); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(t.Context(), "CALL weir_events('orders', 0, 0, 1)"); err == nil || !strings.Contains(err.Error(), strings.ReplaceAll(isolation, " ", "-")) {
			t.Errorf("%s: %v", isolation, err)
		}
	}
}

// Damage is an error, after the events before it.
func TestSQLReportsDamage(t *testing.T) {
	for name, damage := range map[string]string{
		"changed bytes":  "UPDATE weir_piece SET bytes = INSERT(bytes, 70, 1, 'x') WHERE partition_id = ? AND base_offset = 10",
		"missing bytes":  "DELETE FROM weir_piece WHERE partition_id = ? AND base_offset = 10",
		"fewer bytes":    "UPDATE weir_piece SET bytes = LEFT(bytes, 80) WHERE partition_id = ? AND base_offset = 10",
		"missing batch":  "DELETE FROM weir_batch WHERE partition_id = ? AND base_offset = 10",
		"missing, first": "DELETE FROM weir_batch WHERE partition_id = ? AND base_offset <= 10",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, everystore.URL(t, "mysql"))
			p := r.partition("orders", 0)
			for range 3 {
				r.put(p, sealed(t, batch.None, make([]batch.Record, 10)...))
			}
			if _, err := r.db.Exec(damage, int64(p)); err != nil {
				t.Fatal(err)
			}
			if name != "missing, first" {
				if events, err := read(r.db, "orders", 0, 5, 100); err != nil || len(events) != 5 {
					t.Errorf("before the damage: %d events, %v", len(events), err)
				}
			}
			if _, err := read(r.db, "orders", 0, 10, 100); err == nil || !strings.Contains(err.Error(), "the batch of offset 10 is missing") {
				t.Errorf("read of the damage: %v", err)
			}
			if events, err := read(r.db, "orders", 0, 20, 100); err != nil || len(events) != 10 {
				t.Errorf("after the damage: %d events, %v", len(events), err)
			}
		})
	}
}

func TestSQLListsPartitions(t *testing.T) {
	r := newRig(t, everystore.URL(t, "mysql"))
	p := r.partition("orders", 1)
	raw := sealed(t, batch.None, make([]batch.Record, 10)...)
	r.put(p, raw)
	r.put(p, raw)
	if err := r.log.Trim(t.Context(), p, 10); err != nil {
		t.Fatal(err)
	}
	list := func(topic any) (text []string) {
		rows, err := r.db.Query("CALL weir_partitions(?)", topic)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var name string
			var number, first, next, size int64
			if err := rows.Scan(&name, &number, &first, &next, &size); err != nil {
				t.Fatal(err)
			}
			text = append(text, fmt.Sprintf("%s/%d [%d, %d) %d", name, number, first, next, size))
		}
		return text
	}
	orders := []string{"orders/0 [0, 0) 0", fmt.Sprintf("orders/1 [10, 20) %d", len(raw))}
	if got := list("orders"); !slices.Equal(got, orders) {
		t.Errorf("%q, want %q", got, orders)
	}
	if got, want := list(nil), append([]string{"bills/0 [0, 0) 0", "bills/1 [0, 0) 0"}, orders...); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := list("nobody"); got != nil {
		t.Errorf("%q of a topic that does not exist", got)
	}
}
