package sqlfn_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/seed"
)

// shown is the row that a record should be.
func shown(partition int32, rec batch.Record) row {
	e := row{Partition: partition, Offset: rec.Offset, Key: rec.Key, KeyText: textOf(rec.Key), Value: rec.Value, ValueText: textOf(rec.Value), Records: 1}
	if rec.Timestamp >= 0 {
		e.Time = &rec.Timestamp
	}
	headers := map[string][]*string{}
	for _, h := range rec.Headers {
		name := headerText([]byte(h.Key))
		headers[*name] = append(headers[*name], headerText(h.Value))
	}
	object := map[string]any{}
	for name, values := range headers {
		object[name] = values
		if len(values) == 1 {
			object[name] = values[0]
		}
	}
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	text := string(raw)
	e.Headers = &text
	return e
}

func textOf(b []byte) *string {
	if b == nil || !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 {
		return nil
	}
	s := string(b)
	return &s
}

func headerText(b []byte) *string {
	s := textOf(b)
	if b != nil && (s == nil || strings.HasPrefix(*s, `\x`)) {
		as := `\x` + hex.EncodeToString(b)
		return &as
	}
	return s
}

// sameRow compares rows: bytes as bytes (none is not empty), headers as JSON.
func sameRow(a, b row) bool {
	var x, y any
	for e, into := range map[*row]*any{&a: &x, &b: &y} {
		if e.Headers != nil {
			if err := json.Unmarshal([]byte(*e.Headers), into); err != nil {
				panic(err)
			}
		}
		e.Headers = nil
	}
	return reflect.DeepEqual(x, y) && reflect.DeepEqual(a, b)
}

func (e row) String() string {
	as, _ := json.Marshal(e)
	return string(as)
}

func sameRows(t *testing.T, got, want []row) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range got {
		if !sameRow(got[i], want[i]) {
			t.Fatalf("row %d is\n%.2000v, want\n%.2000v", i, got[i], want[i])
		}
	}
}

// odd are the records that are easily told wrongly.
func odd() []*kgo.Record {
	at := time.UnixMilli(1_700_000_000_123)
	return []*kgo.Record{
		{Key: nil, Value: nil, Timestamp: at},
		{Key: []byte{}, Value: []byte{}, Timestamp: at},
		{Key: []byte("k"), Value: nil, Timestamp: at.Add(-time.Hour)},
		{Key: nil, Value: []byte(`{"id": 7, "name": "Ærøskøbing ☂"}`), Timestamp: at.Add(time.Hour)},
		{Key: []byte{0xff, 0x00, 0xfe}, Value: []byte("a zero \x00 byte"), Timestamp: at},
		{Key: []byte("cut \xe2\x98"), Value: []byte("text behind what is none"), Timestamp: at},
		{Key: []byte(`\x41`), Value: bytes.Repeat([]byte("large "), 20_000), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "source", Value: []byte("billing")}, {Key: "", Value: []byte("of no name")}, {Key: "null", Value: nil}, {Key: "empty", Value: []byte{}},
		}},
		{Value: []byte("headers"), Timestamp: at, Headers: []kgo.RecordHeader{
			{Key: "again", Value: []byte("1")}, {Key: "once", Value: []byte("☂")}, {Key: "again", Value: nil}, {Key: "again", Value: []byte("1")},
			{Key: "bytes", Value: []byte{0, 0xff}}, {Key: "looks like bytes", Value: []byte(`\x41`)}, {Key: "\xff", Value: []byte("of no text")},
		}},
		{Value: []byte("many headers"), Timestamp: at, Headers: slices.Repeat([]kgo.RecordHeader{{Key: "a"}, {Key: "b", Value: []byte("c")}}, 50)},
	}
}

// Reliability L8, from the Kafka door to SQL: what SQL shows is what a Kafka consumer gets.
func TestWhatKafkaClientsProduceIsReadByteForByte(t *testing.T) {
	r := startReader(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		for _, config := range []map[string]string{
			{}, {"compression.type": "uncompressed"}, {"compression.type": "uncompressed", "message.timestamp.type": "LogAppendTime"},
		} {
			topic := fmt.Sprintf("%s-%d", name, len(config))
			t.Run(topic, func(t *testing.T) {
				r.topic(topic, 1, config)
				producer := r.client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(20*time.Millisecond))
				if err := producer.ProduceSync(r.limit(), odd()...).FirstErr(); err != nil {
					t.Fatal(err)
				}
				want := r.fetched(r.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), len(odd()))
				got := r.events("weir.events($1)", topic)
				if name == "none" || len(config) > 0 {
					sameRows(t, got, want)
					return
				}
				next := int64(0)
				for _, e := range got { // as many rows as batches
					if *e.Compression != name || e.Offset != next || e.Key != nil || e.Value != nil || e.ValueText != nil || e.Headers != nil {
						t.Errorf("a batch compressed by %s reads as %v", name, e)
					}
					next += int64(e.Records)
				}
				if next != int64(len(want)) {
					t.Errorf("rows stand for %d records, want %d", next, len(want))
				}
			})
		}
	}
}

// fetched are records as a Kafka consumer gets them.
func (r *reader) fetched(consumer *kgo.Client, n int) (list []row) {
	r.t.Helper()
	for len(list) < n {
		fetched := consumer.PollFetches(r.limit())
		if err := fetched.Err(); err != nil {
			r.t.Fatal(err)
		}
		for _, rec := range fetched.Records() {
			as := batch.Record{Offset: rec.Offset, Timestamp: rec.Timestamp.UnixMilli(), Key: rec.Key, Value: rec.Value}
			for _, h := range rec.Headers {
				as.Headers = append(as.Headers, batch.RecordHeader(h))
			}
			list = append(list, shown(rec.Partition, as))
		}
	}
	return list
}

// Reliability L8, from SQL to SQL and to the Kafka door.
func TestWhatSQLPublishesIsReadByteForByte(t *testing.T) {
	r := startReader(t)
	r.topic("t", 2, nil)
	for _, sql := range []string{
		`SELECT weir.publish('t', 'key ☂', 'text', '{"source": "billing", "none": null}', 1)`,
		`SELECT weir.publish('t', NULL, '{"id": 7}'::jsonb, partition => 1)`,
		`SELECT weir.publish('t', '', ''::text, partition => 1)`,
		`SELECT weir.publish('t', 'k', '\xff00fe'::bytea, partition => 1)`,
		`SELECT weir.tombstone('t', 'k', partition => 1)`,
	} {
		r.exec(sql)
	}
	want := r.fetched(r.client(kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())), 5)
	sameRows(t, r.events("weir.events('t')"), want)
	if got := one[string](r, `SELECT string_agg(concat_ws('|', coalesce(key_text, '-'), coalesce(value::text, '-'), headers), ' ') FROM weir.events('t')`); got !=
		`key ☂|\x74657874|{"none": null, "source": "billing"} -|\x7b226964223a20377d|{} |\x|{} k|\xff00fe|{} k|-|{}` {
		t.Error(got)
	}
}

// randomBatch makes records of one batch.
func randomBatch(random *rand.Rand) []batch.Record {
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
			bytes := make([]byte, random.IntN(most))
			for i := range bytes {
				bytes[i] = byte(random.UintN(256))
			}
			return bytes
		}
	}
	count := 1 + random.IntN(20)
	sizes := []int{2, 70, 200, 9000}
	if random.IntN(8) == 0 {
		count, sizes = 1+random.IntN(10_000), []int{2, 30}
	}
	at := random.Int64N(1 << 41)
	spread := int64(1) << random.IntN(42)
	records := make([]batch.Record, count)
	for i := range records {
		records[i] = batch.Record{
			Timestamp: max(batch.NoTimestamp, at+random.Int64N(spread)-spread/2),
			Key:       some(sizes[random.IntN(len(sizes))]), Value: some(sizes[random.IntN(len(sizes))]),
		}
		if random.IntN(3) == 0 {
			for range random.IntN(4) {
				records[i].Headers = append(records[i].Headers, batch.RecordHeader{Key: string(some(5)), Value: some(5)})
			}
		}
	}
	return records
}

func TestRandomBatchesAreReadAsTheBatchPackageDoes(t *testing.T) {
	random := seed.Random(t)
	r := startReader(t)
	topic := r.topic("random", 2, nil)
	var want [2][]row
	for range 40 {
		number := random.IntN(2)
		raw, err := batch.Seal(randomBatch(random), batch.None)
		if err != nil {
			t.Fatal(err)
		}
		if random.IntN(4) == 0 {
			batch.StampAppendTime(raw, random.Int64N(1<<41))
		}
		codec := batch.None
		if random.IntN(5) == 0 {
			codec = batch.Codec(1 + random.IntN(4))
			if raw, err = batch.Recompress(raw, codec, batch.DefaultMaxDecompressed, math.MaxInt); err != nil {
				t.Fatal(err)
			}
		}
		base := int64(0)
		for _, e := range want[number] {
			base += int64(e.Records)
		}
		batch.Patch(raw, base, 0)
		for rec, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
			if err != nil {
				t.Fatal(err)
			}
			want[number] = append(want[number], shown(int32(number), rec))
		}
		if codec != batch.None {
			h, err := batch.Parse(raw)
			if err != nil {
				t.Fatal(err)
			}
			name := codec.String()
			want[number] = append(want[number][:len(want[number])-int(h.Records)], row{
				Partition: int32(number), Offset: base, Time: &h.MaxTimestamp, Compression: &name, Records: h.Records,
			})
			if h.MaxTimestamp < 0 {
				want[number][len(want[number])-1].Time = nil
			}
		}
		r.put(topic.Partitions[number], raw)
		if random.IntN(10) == 0 {
			r.exec(`SELECT weir.roll(false, 0, '0')`) // the next batch comes to rest in another segment
		}
	}
	sameRows(t, r.events("weir.events('random')"), slices.Concat(want[0], want[1]))
	for range 20 {
		number := random.IntN(2)
		from := random.IntN(len(want[number]) + 1)
		rest := want[number][from:]
		at := int64(math.MaxInt64)
		if len(rest) > 0 {
			at = rest[0].Offset
		}
		most := random.IntN(2000)
		sameRows(t, r.events("weir.events('random', $1, $2, $3)", at, number, most), rest[:min(most, len(rest))])
	}
}

func TestNumbersMayTakeMoreBytesThanTheyNeed(t *testing.T) {
	raw, err := batch.Seal([]batch.Record{{Timestamp: 5, Key: []byte("k"), Value: []byte("v")}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	const header = 61
	long := func(n byte, size int) []byte {
		return append(append([]byte{n | 0x80}, bytes.Repeat([]byte{0x80}, size-2)...), 0)
	}
	body := slices.Concat([]byte{0}, long(0, 10), long(0, 5), long(2, 2), []byte("k"), long(2, 3), []byte("v"), long(2, 4), long(2, 5), []byte("h"), long(1, 5))
	raw = slices.Concat(raw[:header], binary.AppendVarint(nil, int64(len(body))), body)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	r := startReader(t)
	r.put(r.topic("long", 1, nil).Partitions[0], raw)
	sameRows(t, r.events("weir.events('long')"), []row{shown(0, batch.Record{
		Timestamp: 5, Key: []byte("k"), Value: []byte("v"), Headers: []batch.RecordHeader{{Key: "h"}},
	})})
}

// marker is a control batch as Kafka's brokers write it: it ends a transaction.
func marker(t *testing.T) []byte {
	t.Helper()
	raw, err := batch.Seal([]batch.Record{{Timestamp: 5, Key: []byte{0, 0, 0, 1}, Value: make([]byte, 6)}}, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	raw[22] |= 1<<5 | 1<<4 // control, transactional
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func TestControlBatchesAreNotShown(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	r.put(p, marker(t))
	r.fill(p, 2) // 1, 2
	r.put(p, marker(t))
	r.put(p, marker(t))
	r.fill(p, 1) // 5
	r.put(p, marker(t))
	for sql, want := range map[string][]int64{
		"weir.events('t')": {1, 2, 5}, "weir.events('t', 0, 0, 2)": {1, 2}, "weir.events('t', 2)": {2, 5}, "weir.events('t', 4, 0, 1)": {5}, "weir.events('t', 6)": nil,
		"weir.last_events('t')": {1, 2, 5}, "weir.last_events('t', 3, 0)": {5}, "weir.last_events('t', 1)": nil,
	} {
		if got := offsets(r.events(sql)); !slices.Equal(got, want) {
			t.Errorf("%s: offsets %d, want %d", sql, got, want)
		}
	}
}

// A producer may send so many headers in one record. What they cost to read must not grow with
// their square.
func TestARecordOfNothingButHeadersIsRead(t *testing.T) {
	r := startReader(t)
	topic := r.topic("t", 2, nil)
	const many = 100_000
	for i, name := range []string{"", "%d"} { // all the same, and all different
		headers := make([]batch.RecordHeader, many/(1+7*i))
		for n := range headers {
			if name != "" {
				headers[n].Key = fmt.Sprintf(name, n)
			}
		}
		raw, err := batch.Seal([]batch.Record{{Headers: headers}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		r.put(topic.Partitions[i], raw)
	}
	const counts = `SELECT array_agg(CASE WHEN headers ? '' THEN jsonb_array_length(headers -> '') ELSE (SELECT count(*) FROM jsonb_object_keys(headers)) END)::text
		FROM weir.events('t')`
	if got := one[string](r, counts); got != fmt.Sprintf("{%d,%d}", many, many/8) {
		t.Errorf("%s headers were read", got)
	}
}

// Times past the year 9999 are refused today. Batches of before are read all the same.
func TestTimesAtTheEdgesOfTimeAreRead(t *testing.T) {
	r := startReader(t)
	const year9999, lastDate = 253402300799999, 9224318015000000
	for i, c := range []struct {
		later int64 // added to all times of the batch
		times []int64
		want  string
	}{
		{0, []int64{batch.NoTimestamp, 0, 1}, "{NULL,0.000,0.001}"},
		{0, []int64{year9999, 1_700_000_000_123}, "{253402300799.999,1700000000.123}"},
		{lastDate - 1001, []int64{1, 1002}, "{9224318014999.000,Infinity}"},
		{math.MaxInt64 - 5, []int64{5, 0}, "{Infinity,Infinity}"},
	} {
		var records []batch.Record
		for _, ms := range c.times {
			records = append(records, batch.Record{Timestamp: ms})
		}
		raw, err := batch.Seal(records, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		putLater(raw, c.later)
		topic := fmt.Sprint("times", i)
		r.put(r.topic(topic, 1, nil).Partitions[0], raw)
		if got := one[string](r, `SELECT array_agg(round(extract(epoch FROM "timestamp"), 3))::text FROM weir.events($1)`, topic); got != c.want {
			t.Errorf("%v later by %d read as %s, want %s", c.times, c.later, got, c.want)
		}
	}
}

// putLater moves the times of a batch: the records' are told from the header's.
func putLater(raw []byte, ms int64) {
	for _, at := range []int{27, 35} { // baseTimestamp, maxTimestamp
		binary.BigEndian.PutUint64(raw[at:], binary.BigEndian.Uint64(raw[at:])+uint64(ms))
	}
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func TestEventsJoinTheUsersTables(t *testing.T) {
	r := startReader(t)
	p := r.topic("orders", 1, nil).Partitions[0]
	for i := range 5 {
		if _, err := r.log.Publish(t.Context(), p, batch.Record{Value: fmt.Appendf(nil, `{"customer": %d, "total": %d}`, i%2, i)}); err != nil {
			t.Fatal(err)
		}
	}
	r.exec(`CREATE TABLE customer (id int PRIMARY KEY, name text); INSERT INTO customer VALUES (0, 'Ada'), (1, 'Brian')`)
	if got := one[string](r, `
		SELECT string_agg(name || ' ' || total, ', ' ORDER BY name)
		FROM (SELECT c.name, sum((e.value_text::jsonb ->> 'total')::int) AS total
		      FROM weir.events('orders') e JOIN customer c ON c.id = (e.value_text::jsonb ->> 'customer')::int
		      GROUP BY c.name) AS x`); got != "Ada 6, Brian 4" {
		t.Error(got)
	}
}

// Reliability D4i.
func TestEventsAreReadInTransactionsOfAllKinds(t *testing.T) {
	r := startReader(t)
	p := r.topic("t", 1, nil).Partitions[0]
	r.put(p, func() []byte {
		raw, err := batch.Seal([]batch.Record{{Value: []byte("text")}, {Value: []byte{0xff}}, {Value: []byte("text")}}, batch.None)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}())
	r.exec(`CREATE TABLE seen (n bigint); CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN SELECT count(*) INTO NEW.n FROM weir.events('t'); RETURN NEW; END $$;
		CREATE TRIGGER look BEFORE INSERT ON seen FOR EACH ROW EXECUTE FUNCTION look()`)
	const rows = `SELECT count(*) FROM weir.events('t')`
	for name, statements := range map[string]string{
		"read only":                      `BEGIN READ ONLY; ` + rows,
		"serializable":                   `BEGIN ISOLATION LEVEL SERIALIZABLE; ` + rows,
		"repeatable read, twice":         `BEGIN ISOLATION LEVEL REPEATABLE READ; ` + rows + `; ` + rows,
		"behind a savepoint rolled back": `BEGIN; SAVEPOINT s; ` + rows + `; ROLLBACK TO s; ` + rows,
		"a trigger":                      `INSERT INTO seen VALUES (0) RETURNING n`,
		"a cursor":                       `BEGIN; DECLARE c CURSOR FOR SELECT "offset" + 3 FROM weir.events('t'); FETCH 1 FROM c`,
		"a prepared statement":           `SET plan_cache_mode = force_generic_plan; PREPARE p(text) AS SELECT count(*) FROM weir.events($1); EXECUTE p('t')`,
		"a parallel plan":                `SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0; ` + rows,
		"a table made of it":             `BEGIN; CREATE TEMP TABLE x ON COMMIT DROP AS SELECT * FROM weir.events('t'); SELECT count(*) FROM x`,
	} {
		results, err := connect(t, r.url).PgConn().Exec(t.Context(), statements).ReadAll()
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := string(results[len(results)-1].Rows[0][0]); got != "3" {
			t.Errorf("%s: %s records, want 3", name, got)
		}
	}
}

func TestWrongArgumentsAreNamed(t *testing.T) {
	r := startReader(t)
	r.topic("t", 2, nil)
	for sql, want := range map[string]struct{ code, names string }{
		`weir.events(NULL)`:                                 {"22004", "topic"},
		`weir.events('t', NULL)`:                            {"22004", "from_offset"},
		`weir.events('t', -1)`:                              {"22023", "from_offset"},
		`weir.events('t', (-9223372036854775808)::bigint)`:  {"22023", "from_offset"},
		`weir.events('t', 0, -1)`:                           {"WE002", "no partition -1"},
		`weir.events('t', 0, 2)`:                            {"WE002", "no partition 2"},
		`weir.events('t', 0, 2147483647)`:                   {"WE002", "no partition 2147483647"},
		`weir.events('t', 0, 0, -1)`:                        {"22023", "max_events"},
		`weir.events('nobody')`:                             {"WE001", `"nobody"`},
		`weir.events('')`:                                   {"22023", `""`},
		`weir.events('%')`:                                  {"22023", `"%"`},
		`weir.events(E'\'; DROP TABLE weir.state; --')`:     {"22023", "DROP"},
		`weir.events(repeat('x', 1000000))`:                 {"22023", "xxx"},
		`weir.last_events(NULL)`:                            {"22004", "topic"},
		`weir.last_events('t', NULL)`:                       {"22004", "max_events"},
		`weir.last_events('t', -1)`:                         {"22023", "max_events"},
		`weir.last_events('t', 1, 7)`:                       {"WE002", "no partition 7"},
		`weir.events('t', 9223372036854775807)`:             {},
		`weir.events('t', 0, NULL, NULL)`:                   {},
		`weir.events('t', 0, NULL, 9223372036854775807)`:    {},
		`weir.last_events('t', 9223372036854775807, NULL)`:  {},
		`weir.events('t', max_events => 0)`:                 {},
		`weir.events(topic => 't', from_offset => 1 << 30)`: {},
	} {
		_, err := r.Exec(t.Context(), "SELECT * FROM "+sql)
		var refused *pgconn.PgError
		switch {
		case want.code == "" && err != nil:
			t.Errorf("%.100s: %v", sql, err)
		case want.code == "":
		case !errors.As(err, &refused) || refused.Code != want.code || !strings.Contains(refused.Message, want.names):
			t.Errorf("%.100s: %.200v, want SQLSTATE %s about %s", sql, err, want.code, want.names)
		case refused.Hint == "":
			t.Errorf("%.100s: no hint with %v", sql, err)
		}
	}
}

// Names are data: a table, a function or an operator of a user's own, found first, changes nothing.
func TestAUsersOwnNamesDoNotLeadEventsAstray(t *testing.T) {
	r := startReader(t)
	r.fill(r.topic("t", 1, nil).Partitions[0], 3)
	r.exec(`
		CREATE SCHEMA mine;
		CREATE FUNCTION mine.get_byte(bytea, int) RETURNS int LANGUAGE sql AS 'SELECT 1';
		CREATE FUNCTION mine.convert_from(bytea, name) RETURNS text LANGUAGE sql AS 'SELECT ''stolen''';
		CREATE FUNCTION mine.plus(int, int) RETURNS int LANGUAGE sql AS 'SELECT 7';
		CREATE OPERATOR mine.+ (FUNCTION = mine.plus, LEFTARG = int, RIGHTARG = int);
		CREATE TABLE mine.state (key text, value text);
		SET search_path = mine, pg_catalog`)
	if got := offsets(r.events("weir.events('t', 1)")); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("read %d", got)
	}
}

// What a session thinks of backslashes is its own business.
func TestBytesInHeadersReadTheSameInEverySession(t *testing.T) {
	_, conn := idle(t, "orders")
	exec(t, conn, `SET standard_conforming_strings = off`)
	var got string
	// One header, "a", with one byte that is no text.
	if err := conn.QueryRow(t.Context(), `SELECT weir.headers(decode('02026102ff', 'hex'), 0, false) ->> 'a'`).Scan(&got); err != nil || got != `\xff` {
		t.Errorf("%q, %v", got, err)
	}
}
