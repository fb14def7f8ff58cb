package sqlfn_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// bad is a call that is refused, with its SQLSTATE, and words of the message and the hint.
type bad struct{ call, code, message, hint string }

func refuseAll(t *testing.T, conn *pgx.Conn, calls []bad) {
	t.Helper()
	for _, c := range calls {
		got := refusal(t, conn, `SELECT weir.`+c.call)
		if got.Code != c.code || !strings.Contains(got.Message, c.message) || !strings.Contains(got.Hint, c.hint) {
			t.Errorf("%.80s: %s %.200s (%s), want %s %q (%q)", c.call, got.Code, got.Message, got.Hint, c.code, c.message, c.hint)
		}
	}
	var n int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.inbox`).Scan(&n); err != nil || n > 0 {
		t.Errorf("%d rows were written by calls that were refused (%v)", n, err)
	}
}

// idle is a database with topics and without a mover: what is written stays in the inbox.
func idle(t *testing.T, topics ...string) (address string, conn *pgx.Conn) {
	t.Helper()
	address = pgtest.URL(t)
	p := start(t, address)
	for _, name := range topics {
		p.create(name, 2, nil)
	}
	p.create("small", 1, map[string]string{"max.message.bytes": "200"})
	p.create("huge", 1, map[string]string{"max.message.bytes": "2147483647"})
	p.stop()
	return address, connect(t, address)
}

// Row D1i: names are data.
func TestOddNamesAreRefusedAsNames(t *testing.T) {
	_, conn := idle(t, "orders")
	var calls []bad
	for _, name := range []string{"", ".", "..", "a b", "a/b", "ü", "a;DROP TABLE weir.inbox", "a'b", `a"b`, "%", "_%", `a\b`, "a\nb", strings.Repeat("x", 250), "topic/orders"} {
		quoted := `'` + strings.ReplaceAll(name, `'`, `''`) + `'`
		calls = append(calls,
			bad{`publish(` + quoted + `, 'k', 'v')`, "22023", "is not a valid name of a topic", "1 to 249"},
			bad{`publish_all(` + quoted + `, NULL, ARRAY['v'])`, "22023", "is not a valid name of a topic", "1 to 249"},
			bad{`commit_offset('g', ` + quoted + `, 0, 1)`, "22023", "is not a valid name of a topic", "1 to 249"})
	}
	for _, name := range []string{"nothing", "Orders", "orders.", "order", strings.Repeat("x", 249)} {
		calls = append(calls,
			bad{`publish('` + name + `', 'k', 'v')`, "WE001", "does not exist", "weir topic create " + name},
			bad{`publish_all('` + name + `', NULL, ARRAY['v'])`, "WE001", "does not exist", "weir topic create"},
			bad{`tombstone('` + name + `', 'k')`, "WE001", "does not exist", "weir topic create"})
	}
	refuseAll(t, conn, calls)
}

// Statements are not put together from what users give: only the numbers of segments, and what the
// owner's migrations say.
func TestNoStatementIsBuiltFromUserText(t *testing.T) {
	files, err := filepath.Glob("sql/*/*.sql")
	if err != nil || len(files) < 5 {
		t.Fatal(files, err)
	}
	built := regexp.MustCompile(`(?i)format\([^)]*%I|EXECUTE\s+[^;]*\|\|`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := built.Find(text); found != nil {
			t.Errorf("%s builds a statement: %.100s", filepath.Base(file), found)
		}
	}
}

// Row D2i: nulls, arrays, sizes.
func TestArgumentsThatWillNotDoAreNamed(t *testing.T) {
	_, conn := idle(t, "orders")
	refuseAll(t, conn, []bad{
		{`publish(NULL, 'k', 'v')`, "22004", "topic is null", "Give the name of the topic"},
		{`publish('orders', 'k', NULL)`, "22004", "value is null", "weir.tombstone"},
		{`publish('orders', 'k', NULL::jsonb)`, "22004", "value is null", "weir.tombstone"},
		{`publish('orders', 'k', NULL::bytea)`, "22004", "value is null", "weir.tombstone"},
		{`tombstone('orders', NULL)`, "22004", "key is null", "needs a key"},
		{`tombstone(NULL, 'k')`, "22004", "topic is null", ""},
		{`publish('orders', 'k', 'v', partition => 2)`, "WE002", "no partition 2", "0 to 1"},
		{`publish('orders', 'k', 'v', partition => -1)`, "WE002", "no partition -1", "0 to 1"},
		{`publish('orders', 'k', 'v', partition => 2147483647)`, "WE002", "no partition 2147483647", ""},
		{`publish('orders', 'k', 'v', '[]')`, "22023", "headers is of type array", "must be an object"},
		{`publish('orders', 'k', 'v', '"a"')`, "22023", "headers is of type string", "must be an object"},
		{`publish('orders', 'k', 'v', 'null')`, "22023", "headers is of type null", "must be an object"},
		{`publish('orders', 'k', 'v', '{"a": 1}')`, "22023", `headers: "a" is of type number`, "a string or null"},
		{`publish('orders', 'k', 'v', '{"a": {"b": "c"}}')`, "22023", `headers: "a" is of type object`, ""},
		{`publish('orders', 'k', 'v', '{')`, "22P02", "json", ""},
		{`publish_all(NULL, NULL, ARRAY['v'])`, "22004", "topic is null", ""},
		{`publish_all('orders', NULL, NULL::text[])`, "22004", "values is null", "empty array"},
		{`publish_all('orders', NULL, ARRAY['a', NULL, 'c'])`, "22004", "values: element 2 is null", "weir.tombstone"},
		{`publish_all('orders', ARRAY['k'], ARRAY['a', 'b'])`, "22023", "keys has 1 elements, but values has 2", "NULL"},
		{`publish_all('orders', '{}', ARRAY['a'])`, "22023", "keys has 0 elements", ""},
		{`publish_all('orders', NULL, ARRAY[['a', 'b'], ['c', 'd']])`, "22023", "values has more than one dimension", ""},
		{`publish_all('orders', ARRAY[['a'], ['b']], ARRAY['a', 'b'])`, "22023", "keys has more than one dimension", ""},
		{`publish_all('orders', NULL, ARRAY[1, 2])`, "22023", "values is of type integer[]", "text[], jsonb[] or bytea[]"},
		{`publish_all('orders', ARRAY[1, 2], ARRAY['a', 'b'])`, "22023", "keys is of type integer[]", "text[] or bytea[]"},
		{`post('orders', NULL, NULL, '{}', NULL, NULL)`, "22004", "value is null", "weir.tombstone"},
		{`post('orders', NULL, NULL, '{}', NULL, true)`, "22004", "key is null", "needs a key"},
		{`publish_all('orders', NULL, ARRAY['v'], '{"a": []}')`, "22023", `headers: "a" is of type array`, ""},
		{`publish('small', 'k', repeat('x', 120))`, "WE003", "201 bytes with key, headers and framing, and the limit is 200", "max.message.bytes"},
		{`publish('small', repeat('k', 120), 'x')`, "WE003", "201 bytes", ""},
		{`publish('small', 'k', 'x', jsonb_build_object('h', repeat('x', 120)))`, "WE003", "the limit is 200", ""},
		{`publish_all('small', ARRAY['a', 'b'], ARRAY['x', repeat('x', 120)])`, "WE003", "201 bytes", ""},
		{`tombstone('small', repeat('k', 121))`, "WE003", "201 bytes", ""},
		{`publish('orders', 'k', repeat('x', 1048588))`, "WE003", "the limit is 1048588", ""},
		{`publish('huge', NULL, repeat('x', (16 << 20) - 79))`, "WE003", "16777217 bytes with key, headers and framing, and the limit is 16777216", "No topic accepts larger events from SQL"},
		{`publish_all('huge', NULL, ARRAY['a', repeat('x', (16 << 20) - 79)])`, "WE003", "the limit is 16777216", "No topic accepts larger events from SQL"},
		{`publish('orders', 'k', repeat('x', 1 << 29))`, "WE003", "536870993 bytes", ""},
	})
	for call, want := range map[string]int64{
		`publish_all('orders', NULL, '{}'::text[])`:                                      0,
		`publish_all('orders', '{}', '{}'::text[])`:                                      0,
		`publish_all('orders', ARRAY['a', NULL], '[7:8]={"x","y"}'::text[])`:             2,
		`publish_all('orders', NULL, ARRAY['{"a":1}'::jsonb])`:                           1,
		`publish_all('orders', NULL, ARRAY['\x00'::bytea], '{"h": "v", "n": null}')`:     1,
		`publish_all('small', NULL, ARRAY[repeat('x', 120)])`:                            1,
		`publish_all('orders', '{k}'::varchar[], ARRAY['a'])`:                            1,
		`publish_all('orders', ARRAY['\xff'::bytea, NULL], ARRAY['a', 'b'])`:             2,
		`publish_all('huge', NULL, ARRAY[repeat('x', (16 << 20) - 80), 'y'])`:            2,
		`publish_all('orders', NULL, ARRAY(SELECT 'x' FROM generate_series(1, 100000)))`: 100000,
	} {
		var n, rows int64
		exec(t, conn, `DELETE FROM weir.inbox`)
		if err := conn.QueryRow(t.Context(), `SELECT weir.`+call).Scan(&n); err != nil || n != want {
			t.Errorf("%s: %d, %v; want %d", call, n, err, want)
		}
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM weir.inbox`).Scan(&rows); err != nil || rows != want {
			t.Errorf("%s: %d rows, %v; want %d", call, rows, err, want)
		}
	}
}

// Row D3i: any bytes are a value; texts are what PostgreSQL takes for one.
func TestAnyBytesAreAValue(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	exec(t, conn, `SELECT weir.publish('orders', 'k', $1::bytea)`, all)
	exec(t, conn, `SELECT weir.publish('orders', $1, $2)`, "schlüssel", "wert ☃")
	exec(t, conn, `SELECT weir.publish('orders', '', '')`)
	if got, want := values(p.read("orders", 3)), []string{string(all), "wert ☃", ""}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := refusal(t, conn, `SELECT weir.publish('orders', 'k', '{"a": "\u0000"}'::jsonb)`); got.Code != "22P05" {
		t.Errorf("a zero character in JSON: %v", got)
	}
	if got := refusal(t, conn, `SELECT weir.publish('orders', 'k', E'\x00ff'::text || $1::text)`, "\xff"); got.Code != "22021" {
		t.Errorf("a text that is not UTF-8: %v", got)
	}
}

// A topic is looked up by name alone, and what it allows is what was last said of it: in the
// transaction that is committed, and in none else.
func TestWhatATopicAllowsCountsFromItsCommit(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	event := func(size int) string {
		return fmt.Sprintf(`SELECT weir.publish('orders', NULL, repeat('x', %d))`, size-80)
	}
	alter := func(most string) {
		t.Helper()
		if _, err := p.log.AlterTopic(t.Context(), "orders", func(config map[string]string) error {
			config["max.message.bytes"] = most
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for range 70 { // so that the row turns
		alter("300")
		alter("2000000")
	}
	exec(t, conn, event(2000000))
	alter("300")
	exec(t, conn, event(300))
	if got := refusal(t, conn, event(301)); got.Code != "WE003" || !strings.Contains(got.Message, "the limit is 300") {
		t.Error(got)
	}
	if got := refusal(t, conn, `SELECT weir.publish('orders', NULL, 'v', partition => 1)`); got.Code != "WE002" {
		t.Error(got)
	}
	if _, err := p.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'v', partition => 1)`)
	exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT`)
	if err := p.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	exec(t, conn, `SELECT weir.publish('orders', NULL, 'to a topic that is gone, and dropped with it')`)
	exec(t, conn, `COMMIT`)
	if got := refusal(t, conn, event(100)); got.Code != "WE001" {
		t.Error(got)
	}
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.topic`); got != "0" {
		t.Errorf("%s topics are left", got)
	}
}

// Row D4i: where it is called from.
func TestPublishingWorksWhereverItIsCalledFrom(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("orders", 1, nil)
	conn := connect(t, address)
	exec(t, conn, `CREATE TABLE made (id int PRIMARY KEY, name text)`)
	exec(t, conn, `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN PERFORM weir.publish('orders', NEW.id::text, to_jsonb(NEW)); RETURN NEW; END $$`)
	exec(t, conn, `CREATE TRIGGER tell AFTER INSERT ON made FOR EACH ROW EXECUTE FUNCTION tell()`)
	exec(t, conn, `ALTER TABLE made ENABLE ROW LEVEL SECURITY`)

	exec(t, conn, `INSERT INTO made VALUES (1, 'by a trigger')`)
	exec(t, conn, `DO $$ BEGIN PERFORM weir.publish('orders', 'k', 'in a block'); END $$`)
	exec(t, conn, `DO $$ BEGIN
		BEGIN PERFORM weir.publish('orders', 'k', 'undone'); RAISE 'oh'; EXCEPTION WHEN OTHERS THEN NULL; END;
		PERFORM weir.publish('orders', 'k', 'after an exception'); END $$`)
	exec(t, conn, `BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT weir.publish('orders', 'k', 'serializable'); COMMIT`)
	exec(t, conn, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT weir.publish('orders', 'k', 'repeatable'); COMMIT`)
	exec(t, conn, `SET statement_timeout = '5s'; SELECT weir.publish('orders', 'k', 'in time'); RESET statement_timeout`)
	parallel := pgtest.Value(t, address, `SELECT name FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')`) // since 16 the latter
	exec(t, conn, `SET `+parallel+` = on; SELECT weir.publish('orders', g::text, 'row ' || g) FROM generate_series(1, 3) AS g; RESET `+parallel)
	exec(t, conn, `WITH w AS (INSERT INTO made VALUES (2, 'in a CTE') RETURNING id) SELECT weir.publish('orders', id::text, 'beside it') FROM w`)
	exec(t, conn, `SELECT weir.publish('orders', 'k', 'asynchronous') FROM set_config('synchronous_commit', 'off', false)`)

	exec(t, conn, `BEGIN; SAVEPOINT s`)
	refusal(t, conn, `SELECT weir.publish('nothing', 'k', 'v')`)
	if got := refusal(t, conn, `SELECT weir.publish('orders', 'k', 'aborted')`); got.Code != "25P02" {
		t.Errorf("in an aborted transaction: %v", got)
	}
	exec(t, conn, `ROLLBACK TO s; SELECT weir.publish('orders', 'k', 'after a refusal'); COMMIT`)
	exec(t, conn, `BEGIN READ ONLY`)
	if got := refusal(t, conn, `SELECT weir.publish('orders', 'k', 'read only')`); got.Code != "25006" {
		t.Errorf("in a read-only transaction: %v", got)
	}
	exec(t, conn, `ROLLBACK`)

	want := []string{`{"id": 1, "name": "by a trigger"}`, "in a block", "after an exception", "serializable", "repeatable", "in time",
		"row 1", "row 2", "row 3", "beside it", `{"id": 2, "name": "in a CTE"}`, "asynchronous", "after a refusal"}
	got := values(p.read("orders", len(want)))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nwant %q", got, want)
	}
}

// Row D7i: each refusal has its code, of class WE, or that of PostgreSQL for arguments; docs/sql.md
// lists them.
func TestEveryCodeIsExplained(t *testing.T) {
	explained, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob("sql/*/*.sql")
	codes := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, code := range regexp.MustCompile(`'WE\d{3}'`).FindAll(text, -1) {
			codes[strings.Trim(string(code), "'")] = true
		}
	}
	for code := range codes {
		if code < "WE090" && !strings.Contains(string(explained), code) {
			t.Errorf("docs/sql.md does not explain %s", code)
		}
	}
	if len(codes) < 5 {
		t.Errorf("codes: %v", fmt.Sprint(codes))
	}
}

func TestNobodyPublishesToACategoryWithSQL(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	if _, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "order", Partitions: 2, Writer: "streams"}); err != nil {
		t.Fatal(err)
	}
	p.stop()
	var calls []bad
	for _, call := range []string{
		`publish('order', 'k', 'v')`, `publish('order', 'k', '')`, `publish('order', 'k', 'v', '{"a": "b"}')`, `publish('order', 'k', 'v', partition => 0)`,
		`publish_all('order', NULL, ARRAY['v'])`, `publish_all('order', NULL, '{}'::text[])`, `tombstone('order', 'k')`,
	} {
		calls = append(calls, bad{call, "WE009", `topic "order" is a category of streams`, "append to a stream"})
	}
	refuseAll(t, connect(t, address), calls)
}

func TestNobodyPublishesToAnInternalTopicWithSQL(t *testing.T) {
	own := []string{"__weir_later", "__consumer_offsets", "__weir_anything"}
	_, conn := idle(t, append(own, "__mine", "_weir_mine")...)
	for _, topic := range own {
		if !eventlog.InternalTopic(topic) {
			t.Fatalf("%q is no internal topic", topic)
		}
		var calls []bad
		for _, call := range []string{
			`publish('%s', 'k', 'v')`, `publish('%s', 'k', '{}'::jsonb)`, `publish('%s', '\x00'::bytea, '\x00'::bytea)`,
			`publish('%s', 'k', 'v', '{"a": "b"}')`, `publish('%s', 'k', 'v', partition => 0)`,
			`publish_all('%s', NULL, ARRAY['v'])`, `tombstone('%s', 'k')`,
		} {
			calls = append(calls, bad{fmt.Sprintf(call, topic), "WE009", `topic "` + topic + `" is reserved for weir`, "another topic"})
		}
		refuseAll(t, conn, calls)
	}
	for _, topic := range []string{"__mine", "_weir_mine"} {
		exec(t, conn, fmt.Sprintf(`SELECT weir.publish('%s', 'k', 'v'), weir.publish_all('%[1]s', NULL, ARRAY['v'])`, topic))
	}
}

// Compaction could never remove an event without a key.
func TestACompactedTopicTakesNoEventWithoutAKey(t *testing.T) {
	address := pgtest.URL(t)
	p := start(t, address)
	p.create("states", 2, map[string]string{"cleanup.policy": "compact"})
	p.create("both", 1, map[string]string{"cleanup.policy": "compact,delete"})
	p.create("orders", 1, map[string]string{"cleanup.policy": "delete"})
	p.stop()
	conn := connect(t, address)
	const hint = "give each event a key"
	refuseAll(t, conn, []bad{
		{`publish('states', NULL, 'v')`, "22004", `key is null, and topic "states" is compacted`, hint},
		{`publish('both', NULL::bytea, 'v'::bytea)`, "22004", `key is null, and topic "both" is compacted`, hint},
		{`publish('states', NULL, 'v', '{"a": "b"}', 1)`, "22004", `key is null, and topic "states" is compacted`, hint},
		{`post('both', NULL, 'v', '{}', NULL, false)`, "22004", `key is null, and topic "both" is compacted`, hint},
		{`publish_all('states', NULL, ARRAY['v'])`, "22004", `keys is null, and topic "states" is compacted`, hint},
		{`publish_all('both', ARRAY['k', NULL], ARRAY['v', 'w'])`, "22004", `keys: element 2 is null, and topic "both" is compacted`, hint},
	})
	for _, call := range []string{
		`publish('states', 'k', 'v')`, `publish('states', 'k', 'v', '{"a": "b"}')`, `tombstone('states', 'k')`,
		`publish_all('states', ARRAY['k', 'l'], ARRAY['v', 'w'])`, `publish_all('states', NULL, '{}'::text[])`,
		`publish('orders', NULL, 'v')`, `publish_all('orders', ARRAY['k', NULL], ARRAY['v', 'w'])`,
		`create_topic('asked', 1, '{"cleanup.policy": "compact"}')`, `publish('asked', 'k', 'v')`,
	} {
		exec(t, conn, `SELECT weir.`+call)
	}
	if got := refusal(t, conn, `SELECT weir.publish('asked', NULL, 'v')`); !strings.Contains(got.Message, `topic "asked" is compacted`) {
		t.Errorf("a topic that was asked for: %s", got.Message)
	}
}
