package sqlfn_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/stream"
)

// startStreams is start, with a category "account" of two partitions.
func startStreams(t testing.TB, address string, moves bool) (*process, *stream.Category) {
	t.Helper()
	p := open(t, address)
	streams := stream.New(p.log, stream.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { p.log.Run(ctx) })
	if moves {
		all.Go(func() { sqlfn.New(p.log, p.door, sqlfn.Config{Streams: streams}).Run(ctx) })
	}
	p.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
		p.store.Close()
	})
	t.Cleanup(p.stop)
	c, err := streams.EnsureCategory(t.Context(), stream.Spec{Name: "account", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	return p, c
}

func carried(t *testing.T, address string) {
	t.Helper()
	await(t, address, `SELECT count(*) = 0 FROM (SELECT FROM weir.inbox UNION ALL SELECT FROM weir.held UNION ALL SELECT FROM weir.appended) AS x`)
}

// bySQL calls a function that returns a version.
func bySQL(t testing.TB, conn *pgx.Conn, call string) int64 {
	t.Helper()
	var version int64
	if err := conn.QueryRow(t.Context(), `SELECT weir.`+call).Scan(&version); err != nil {
		t.Fatalf("%s: %v", call, err)
	}
	return version
}

// inStream lists the data of a stream's events with their versions, as weir.stream returns them.
func inStream(t testing.TB, conn *pgx.Conn, rest string) string {
	t.Helper()
	var all string
	sql := `SELECT coalesce(string_agg(version || ':' || coalesce(data_text, '-'), ' ' ORDER BY n), '') FROM weir.stream('account', ` + rest + `) WITH ORDINALITY AS s(version, id, type, "time", data, data_text, metadata, subject, tags, n)`
	if err := conn.QueryRow(t.Context(), sql).Scan(&all); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// inGo lists the same as Go reads it.
func inGo(t testing.TB, c *stream.Category, name string) string {
	t.Helper()
	var all []string
	for e, err := range c.Events(t.Context(), name, stream.Range{}) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%d:%s", e.Version, e.Data))
	}
	return strings.Join(all, " ")
}

func TestEventsAreAppendedIfTheirTransactionCommits(t *testing.T) {
	address := pgtest.URL(t)
	p, c := startStreams(t, address, false)
	conn, other := connect(t, address), connect(t, address)
	exec(t, conn, `BEGIN`)
	if v := bySQL(t, conn, `append('account', 'a', 'none', 'T', 'undone')`); v != 1 {
		t.Errorf("version %d, want 1", v)
	}
	exec(t, conn, `ROLLBACK`)
	exec(t, conn, `BEGIN`)
	for n, call := range []string{
		`append('account', 'a', 'none', 'T', 'zero')`,
		`append('account', 'a', 1, 'T', '{"n": 1}'::jsonb, '{"m": "x"}', 'id 1', '2020-01-01T00:00:00.123456Z')`,
	} {
		if v := bySQL(t, conn, call); v != int64(n+1) {
			t.Errorf("%s: version %d, want %d", call, v, n+1)
		}
	}
	exec(t, conn, `SAVEPOINT s`)
	bySQL(t, conn, `append('account', 'a', 'exists', 'T', 'undone')`)
	exec(t, conn, `ROLLBACK TO s`)
	if v := bySQL(t, conn, `append_all('account', 'a', 2, ARRAY['T', 'U'], ARRAY['\x00ff'::bytea, ''], ids => ARRAY['x', NULL])`); v != 4 {
		t.Errorf("version %d, want 4", v)
	}
	const want = `0:zero 1:{"n": 1} 2:- 3:`
	if got := inStream(t, conn, `'a'`); got != want {
		t.Errorf("in its own transaction: %s", got)
	}
	if got := inStream(t, other, `'a'`); got != "" {
		t.Errorf("before the commit: %s", got)
	}
	exec(t, conn, `COMMIT`)
	if got := inStream(t, other, `'a'`); got != want {
		t.Errorf("committed, not carried: %s", got)
	}
	var before, after []string
	all := `SELECT s::text FROM weir.stream('account', 'a') AS s`
	before = texts(t, conn, all)
	startStreams(t, address, true)
	carried(t, address)
	if after = texts(t, conn, all); !slices.Equal(before, after) {
		t.Errorf("weir.stream before it was carried:\n%s\nand after:\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
	if got := inGo(t, c, "a"); got != "0:zero 1:{\"n\": 1} 2:\x00\xff 3:" {
		t.Errorf("in Go: %q", got)
	}
	done, err := c.Append(t.Context(), "a", 4, stream.NewEvent{Type: "T", Data: []byte("go")})
	if err != nil || done.Version != 5 {
		t.Fatal(done, err)
	}
	var headers []string
	for _, e := range p.read("account", 5) {
		headers = append(headers, e.Key+" "+e.Value+" "+e.Headers)
	}
	if len(headers) != 5 || headers[1] != `a {"n": 1} weir.event.id=id 1;weir.event.type=T;weir.stream.version=1;m=x;` {
		t.Errorf("records: %q", headers)
	}
	if got := texts(t, conn, `SELECT string_agg(value_text, ',') FROM weir.events('account') WHERE value_text IS NOT NULL`); got[0] != `zero,{"n": 1},,go` {
		t.Errorf("weir.events: %s", got)
	}
}

func texts(t testing.TB, conn *pgx.Conn, sql string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return list
}

// What the mover writes is what Go would have written: the same keys and the same records, but for
// random numbers.
func TestWhatIsCarriedIsAsIfGoHadAppendedIt(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, true)
	conn := connect(t, address)
	at := time.UnixMilli(1600000000123)
	for range 2 {
		events := []stream.NewEvent{
			{ID: "1", Type: "T", Data: []byte("v"), Time: at, Metadata: []batch.RecordHeader{{Key: "a", Value: []byte("b")}, {Key: "c"}}},
			{ID: "2", Type: "U", Data: []byte{}, Time: at},
		}
		for i := range events {
			events[i].ID += time.Now().String()
		}
		if _, err := c.Append(t.Context(), "by go", stream.Any, events...); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `SELECT weir.append_all('account', 'by go'||'!', 'any', ARRAY['T', 'U'], ARRAY['v', ''], ARRAY['{"a": "b", "c": null}', NULL]::jsonb[], ARRAY[$1, $2], ARRAY[$3, $3]::timestamptz[])`,
			events[0].ID, events[1].ID, at)
		carried(t, address)
	}
	if by, bySQL := keysOf(t, c, address, "by go"), keysOf(t, c, address, "by go!"); !reflect.DeepEqual(by, bySQL) || len(by) != 5 {
		t.Errorf("by Go:\n%q\nby SQL:\n%q", by, bySQL)
	}
}

// keysOf returns the head and the events of a stream, as they are stored, but for the stream's name
// and the partition.
func keysOf(t *testing.T, c *stream.Category, address, name string) (all []string) {
	t.Helper()
	conn := connect(t, address)
	rows, err := conn.Query(t.Context(), `SELECT key, value FROM weir.state WHERE key IN ($1) OR key LIKE replace($1, 'stream/head/', 'stream/event/') || '/%' ORDER BY key DESC`, "stream/head/"+c.ID().String()+"/"+url.PathEscape(name))
	if err != nil {
		t.Fatal(err)
	}
	var key string
	var value []byte
	if _, err := pgx.ForEachRow(rows, []any{&key, &value}, func() error {
		if strings.HasPrefix(key, "stream/event/") {
			for r, err := range batch.Records(value, 1<<20) {
				if err != nil {
					return err
				}
				all = append(all, key[len(key)-19:]+" "+describe(0, r).Value+fmt.Sprint(describe(0, r).Time)+describe(0, r).Headers)
			}
			return nil
		}
		_, rest, _ := strings.Cut(string(value), `,`)
		rest, _, _ = strings.Cut(rest, `,"bytes"`) // a longer name makes more bytes
		all = append(all, rest)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAnAppendWithSQLConflictsAsInGo(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, true)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.append_all('account', 'a', 0, ARRAY['T', 'T'], ARRAY['x', 'y'], ids => ARRAY['1', '2'])`)
	check := func(when string) {
		t.Helper()
		for call, want := range map[string]string{
			`append('account', 'a', 1, 'T', 'v')`:                                                      `WE011 stream "a" of category "account", which exists, is at version 2, but version 1 was expected`,
			`append('account', 'a', 3, 'T', 'v')`:                                                      `WE011 stream "a" of category "account", which exists, is at version 2, but version 3 was expected`,
			`append('account', 'a', 'none', 'T', 'v')`:                                                 `WE011 stream "a" of category "account", which exists, is at version 2, but no stream was expected`,
			`append('account', 'b', 'exists', 'T', 'v')`:                                               `WE011 stream "b" of category "account", which does not exist, is at version 0, but a stream that exists was expected`,
			`append('account', 'a', 0, 'T', 'x', id => '2')`:                                           `WE011 stream "a"`,
			`append('account', 'a', 0, 'T', 'z', id => '1')`:                                           `WE014 the event with version 0 has the same id, but other content`,
			`append('account', 'a', 1, 'T', 'y', '{"a": "b"}', '2')`:                                   `WE014`,
			`append_all('account', 'a', 0, ARRAY['T', 'T'], ARRAY['x', 'y'], ids => ARRAY['1', '3'])`:  `WE011`,
			`append_all('account', 'a', 0, ARRAY['T', 'T'], ARRAY['x', 'y'], ids => ARRAY['1', NULL])`: `WE011`,
			`append_all('account', 'a', 1, ARRAY['T', 'T'], ARRAY['y', 'z'], ids => ARRAY['2', '3'])`:  `WE011`,
			`append('account', 'a', 'none', 'T', 'x', id => '1')`:                                      `WE011`,
		} {
			got := refusal(t, conn, `SELECT weir.`+call)
			if said := got.Code + " " + got.Message; !strings.HasPrefix(said, want) {
				t.Errorf("%s: %s: %s, want %s", when, call, said, want)
			}
		}
		for _, call := range []string{
			`append_all('account', 'a', 0, ARRAY['T', 'T'], ARRAY['x', 'y'], ids => ARRAY['1', '2'])`,
			`append('account', 'a', 1, 'T', 'y', id => '2')`,
		} {
			if v := bySQL(t, conn, call); v != 2 {
				t.Errorf("%s: %s again: version %d, want 2", when, call, v)
			}
		}
	}
	check("at first")
	carried(t, address)
	check("carried")
	if done, err := c.Append(t.Context(), "a", 0, stream.NewEvent{ID: "1", Type: "T", Data: []byte("x")}, stream.NewEvent{ID: "2", Type: "T", Data: []byte("y")}); err != nil || !done.Duplicate {
		t.Errorf("the same append in Go: %+v %v", done, err)
	}
	if err := c.Archive(t.Context(), "a", stream.Any); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, conn, `SELECT weir.append('account', 'a', 2, 'T', 'v')`); got.Code != "WE013" {
		t.Errorf("archived: %v", got)
	}
	if err := c.Unarchive(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(t.Context(), "a", stream.Any); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, conn, `SELECT weir.append('account', 'a', 'exists', 'T', 'v')`); !strings.Contains(got.Message, "does not exist, is at version 2") {
		t.Errorf("deleted: %v", got)
	}
	if v := bySQL(t, conn, `append('account', 'a', 'none', 'T', 'again')`); v != 3 {
		t.Errorf("begun again: version %d, want 3", v)
	}
	if got := inStream(t, conn, `'a'`); got != "2:again" {
		t.Errorf("begun again: %s", got)
	}
	carried(t, address)
	if got := inGo(t, c, "a"); got != "2:again" {
		t.Errorf("begun again, in Go: %s", got)
	}
}

func TestBadAppendsAreRefused(t *testing.T) {
	address := pgtest.URL(t)
	p, _ := startStreams(t, address, false)
	p.create("topic", 1, nil)
	conn := connect(t, address)
	long := func(n int) string { return fmt.Sprintf(`repeat('x', %d)`, n) }
	refuseAll(t, conn, []bad{
		{`append(NULL, 's', 'any', 'T', 'v')`, "22004", "category is null", "name"},
		{`append('none', 's', 'any', 'T', 'v')`, "WE012", `category "none" does not exist`, "weir stream category create none"},
		{`append('topic', 's', 'any', 'T', 'v')`, "WE012", `"topic" is a topic, not a category`, "weir.publish"},
		{`append('account', NULL, 'any', 'T', 'v')`, "22004", "stream is null", ""},
		{`append('account', '', 'any', 'T', 'v')`, "22023", "stream has 0 bytes", "1 to 255"},
		{`append('account', ` + long(256) + `, 'any', 'T', 'v')`, "22023", "stream has 256 bytes", "1 to 255"},
		{`append('account', E'a\nb', 'any', 'T', 'v')`, "22023", "control characters", ""},
		{`append('account', E'a\x7f', 'any', 'T', 'v')`, "22023", "control characters", ""},
		{`append('account', 's', NULL, 'T', 'v')`, "22004", "expected is null", "none, exists or any"},
		{`append('account', 's', '', 'T', 'v')`, "22023", `expected is ""`, "none, exists or any"},
		{`append('account', 's', 'ANY', 'T', 'v')`, "22023", `expected is "ANY"`, "none, exists or any"},
		{`append('account', 's', -1, 'T', 'v')`, "22023", `expected is "-1"`, "none, exists or any"},
		{`append('account', 's', 9223372036854775807, 'T', 'v')`, "22023", `expected is "9223372036854775807"`, ""},
		{`append('account', 's', 'any', NULL, 'v')`, "22004", "event 1: type is null", ""},
		{`append('account', 's', 'any', '', 'v')`, "22023", "event 1: type has 0 bytes; it must have 1 to 255", ""},
		{`append('account', 's', 'any', ` + long(256) + `, 'v')`, "22023", "type has 256 bytes", ""},
		{`append('account', 's', 'any', 'weir.x', 'v')`, "22023", "reserved", ""},
		{`append('account', 's', 'any', 'T', NULL)`, "22004", "data is null", ""},
		{`append('account', 's', 'any', 'T', 'v', '[]')`, "22023", "metadata is of type array", ""},
		{`append('account', 's', 'any', 'T', 'v', '{"a": 1}')`, "22023", "strings and nulls", ""},
		{`append('account', 's', 'any', 'T', 'v', '{"weir.x": "a"}')`, "22023", "reserved", ""},
		{`append('account', 's', 'any', 'T', 'v', id => ` + long(129) + `)`, "22023", "id has 129 bytes; it must have at most 128", ""},
		{`append('account', 's', 'any', 'T', 'v', at => '1969-12-31')`, "22023", "1970 to 9999", ""},
		{`append('account', 's', 'any', 'T', 'v', at => 'infinity')`, "22023", "1970 to 9999", ""},
		{`append('account', 's', 'any', 'T', ` + long(1_100_000) + `)`, "WE003", "the limit is 1048588", "max.message.bytes"},
		{`append_all('account', 's', 'any', NULL, ARRAY['v'])`, "22023", "types has 0 elements", "1 to 10000"},
		{`append_all('account', 's', 'any', '{}', '{}'::text[])`, "22023", "types has 0 elements", "1 to 10000"},
		{`append_all('account', 's', 'any', array_fill('T'::text, ARRAY[10001]), array_fill('v'::text, ARRAY[10001]))`, "22023", "types has 10001 elements", "1 to 10000"},
		{`append_all('account', 's', 'any', ARRAY['T', 'T'], ARRAY['v'])`, "22023", "data has 1 elements, but types has 2", "one element for each"},
		{`append_all('account', 's', 'any', ARRAY['T'], NULL::text[])`, "22023", "data has 0 elements", ""},
		{`append_all('account', 's', 'any', ARRAY['T'], ARRAY[1])`, "22023", "data is of type integer[]", "cast"},
		{`append_all('account', 's', 'any', ARRAY['T'], ARRAY[['a']])`, "22023", "more than one dimension", ""},
		{`append_all('account', 's', 'any', ARRAY['T', 'T'], ARRAY['v', NULL])`, "22004", "event 2: data is null", ""},
		{`append_all('account', 's', 'any', ARRAY['T', 'T'], ARRAY['v', 'v'], ids => ARRAY['1'])`, "22023", "ids has 1 elements", ""},
		{`append_all('account', 's', 'any', ARRAY['T', 'T'], ARRAY['v', 'v'], ids => ARRAY['1', '1'])`, "22023", `two events have the id "1"`, ""},
		{`append_all('account', 's', 0, ARRAY['T', 'T'], ARRAY['v', 'v'], at => ARRAY[now()])`, "22023", "at has 1 elements", ""},
		{`stream('none', 's')`, "WE012", "does not exist", ""},
		{`stream('account', NULL)`, "22004", "stream is null", ""},
		{`stream('account', 's', NULL)`, "22004", "from_version is null", ""},
		{`stream('account', 's', -1)`, "22023", "-1 to the end", ""},
		{`stream('account', 's', 2, 1)`, "22023", "2 to 1", ""},
		{`stream('account', 's', backward => NULL)`, "22004", "backward is null", ""},
		{`stream('account', 's', max_events => -1)`, "22023", "max_events is -1", ""},
		{`state_at('topic', 's')`, "WE012", "not a category", ""},
		{`publish('account', 'k', 'v')`, "WE009", "category of streams", "weir.append"},
	})
	for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
		exec(t, conn, `BEGIN ISOLATION LEVEL `+level)
		if got := refusal(t, conn, `SELECT weir.append('account', 's', 'any', 'T', 'v')`); got.Code != "0A000" || !strings.Contains(got.Message, level) {
			t.Errorf("%s: %v", level, got)
		}
		exec(t, conn, `ROLLBACK`)
	}
	if n := pgtest.Value(t, address, `SELECT count(*) FROM (SELECT FROM weir.held UNION ALL SELECT FROM weir.appended) AS x`); n != "0" {
		t.Errorf("%s rows were written by calls that were refused", n)
	}
	bySQL(t, conn, `append('account', repeat('ü', 127), 'none', repeat('T', 255), '', id => repeat('i', 128), at => '9999-12-31')`)
	bySQL(t, conn, `append_all('account', 'many', 'none', array_fill('T'::text, ARRAY[4000]), array_fill('v'::text, ARRAY[4000]))`)
}

func TestAStreamIsReadInPartsWithSQL(t *testing.T) {
	address := pgtest.URL(t)
	p, c := startStreams(t, address, false)
	conn := connect(t, address)
	for n := range 4 {
		if _, err := c.Append(t.Context(), "a", stream.Any, stream.NewEvent{Type: fmt.Sprint("T", n%2), Data: fmt.Append(nil, n), Time: time.UnixMilli(int64(1000 * n))}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, `SELECT weir.append_all('account', 'a', 4, ARRAY['T0', 'T1'], ARRAY['4', '5'], at => ARRAY[to_timestamp(4), to_timestamp(5)])`)
	for rest, want := range map[string]string{
		`'a'`:                                    "0:0 1:1 2:2 3:3 4:4 5:5",
		`'a', 2`:                                 "2:2 3:3 4:4 5:5",
		`'a', 5`:                                 "5:5",
		`'a', 6`:                                 "",
		`'a', 1, 5`:                              "1:1 2:2 3:3 4:4",
		`'a', 1, 3`:                              "1:1 2:2",
		`'a', 1, 1`:                              "",
		`'a', backward => true`:                  "5:5 4:4 3:3 2:2 1:1 0:0",
		`'a', backward => true, max_events => 3`: "5:5 4:4 3:3",
		`'a', 0, 3, backward => true`:            "2:2 1:1 0:0",
		`'a', max_events => 0`:                   "",
		`'a', max_events => 5`:                   "0:0 1:1 2:2 3:3 4:4",
		`'a', types => '{T1}'`:                   "1:1 3:3 5:5",
		`'a', types => '{T1}', max_events => 2`:  "1:1 3:3",
		`'a', types => '{}'`:                     "",
		`'a', until => to_timestamp(4)`:          "0:0 1:1 2:2 3:3 4:4",
		`'a', until => to_timestamp(2.5), backward => true, types => '{T0}'`: "2:2 0:0",
		`'none'`: "",
	} {
		if got := inStream(t, conn, rest); got != want {
			t.Errorf("weir.stream('account', %s): %s, want %s", rest, got, want)
		}
	}
	// What is not carried holds the stream, also for changes that are no appends.
	if err := p.whileHeld(func(ctx context.Context) error { return c.Forget(ctx, "a", 2) }); !errors.Is(err, eventlog.ErrHeld) {
		t.Errorf("forget: %v, want ErrHeld", err)
	}
}

func TestTheStateAtATimeIsWhatEventsUntilThenAddUpTo(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, true)
	conn := connect(t, address)
	exec(t, conn, `SELECT weir.append_all('account', 'a', 0, ARRAY['T', 'T', 'T', 'T', 'T'], ARRAY['{"owner": "ann", "amount": 1}', 'no json', '[1]', '{"amount": 2, "x": null}', '{"amount": {"b": 3}}'],
		at => ARRAY[to_timestamp(1), to_timestamp(2), to_timestamp(3), to_timestamp(4), to_timestamp(5)])`)
	check := func() {
		t.Helper()
		for at, want := range map[string]string{
			`'a', to_timestamp(0.5)`: `(,0)`,
			`'a', to_timestamp(1)`:   `("{""owner"": ""ann"", ""amount"": 1}",1)`,
			`'a', to_timestamp(3)`:   `("{""owner"": ""ann"", ""amount"": 1}",3)`,
			`'a', to_timestamp(4)`:   `("{""x"": null, ""owner"": ""ann"", ""amount"": 2}",4)`,
			`'a'`:                    `("{""x"": null, ""owner"": ""ann"", ""amount"": {""b"": 3}}",5)`,
			`'none'`:                 `(,0)`,
		} {
			if got := texts(t, conn, `SELECT weir.state_at('account', `+at+`)::text`)[0]; got != want {
				t.Errorf("state_at %s: %s, want %s", at, got, want)
			}
		}
	}
	check()
	carried(t, address)
	check()
	if err := c.Forget(t.Context(), "a", 2); err != nil {
		t.Fatal(err)
	}
	if got := refusal(t, conn, `SELECT weir.state_at('account', 'a')`); got.Code != "WE015" || !strings.Contains(got.Message, "below version 2") {
		t.Errorf("of events that were forgotten: %v", got)
	}
}

// One event cannot make the state of its stream unreadable for good: jsonb can hold less than JSON
// can say.
func TestTheStateOfAStreamNeedsNoEventThatJsonbCannotHold(t *testing.T) {
	address := pgtest.URL(t)
	startStreams(t, address, true)
	conn := connect(t, address)
	for version, event := range []struct{ data, state string }{
		{`{"a": 1}`, `{"a": 1}`},
		{`{"note": "a\u0000b"}`, `{"a": 1, "note": "a�b"}`},
		{`{"big": 1e200000}`, `{"a": 1, "note": "a�b"}`},
		{strings.Repeat("[", 20000) + strings.Repeat("]", 20000), `{"a": 1, "note": "a�b"}`},
		{`{"deep": ` + strings.Repeat(`{"x": `, 20000) + "1" + strings.Repeat("}", 20001), `{"a": 1, "note": "a�b"}`},
		{`{"half": "\ud800"}`, `{"a": 1, "note": "a�b"}`},
		{`{"a": 2}`, `{"a": 2, "note": "a�b"}`},
	} {
		exec(t, conn, `SELECT weir.append('account', 's', $1::bigint, 'T', convert_to($2, 'UTF8'))`, version, event.data)
		var state string
		var upto int
		if err := conn.QueryRow(t.Context(), `SELECT state::text, version FROM weir.state_at('account', 's')`).Scan(&state, &upto); err != nil {
			t.Errorf("after event %.40s: %v", event.data, err)
		} else if state != event.state || upto != version+1 {
			t.Errorf("after event %.40s: state %s, version %d; want %s, %d", event.data, state, upto, event.state, version+1)
		}
	}
}

// Data about a subject is never shown encrypted, and tags, odd names and bytes are shown as they
// were given.
func TestOddEventsAreShownWithSQL(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, true)
	conn := connect(t, address)
	const name = `ünü/%_'"\;?`
	var headers []batch.RecordHeader
	for n := range 20 {
		headers = append(headers, batch.RecordHeader{Key: fmt.Sprint("h", n), Value: []byte(`\x41`)})
	}
	_, err := c.Append(t.Context(), name, stream.NoStream,
		stream.NewEvent{ID: `\x4142`, Type: `\x43`, Data: []byte("secret"), Subject: "ann"},
		stream.NewEvent{ID: "two", Type: "T", Data: make([]byte, 300_000), Tags: []string{"b", `\xa`}},
		stream.NewEvent{ID: "three", Type: "T", Tags: []string{"b"}, Metadata: headers},
		stream.NewEvent{ID: "four", Type: "T", Data: []byte("v"), Metadata: []batch.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "n"}, {Key: "b", Value: []byte{0xff}}}},
	)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	rows, err := conn.Query(t.Context(), `SELECT version || '|' || id || '|' || type || '|' || coalesce(octet_length(data)::text, 'null') || '|' || (data_text IS NULL) || '|' || coalesce(subject, '')
		|| '|' || coalesce(array_to_string(tags, ','), '') || '|' || left(metadata::text, 50) FROM weir.stream('account', $1)`, name)
	if err == nil {
		got, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	want := []string{
		`0|\x4142|\x43|null|true|ann||{}`,
		`1|two|T|300000|true||b,\xa|{}`,
		`2|three|T|0|false||b|{"h0": "\\x5c783431", "h1": "\\x5c783431", "h2": "`,
		`3|four|T|1|false|||{"a": ["1", "2"], "b": "\\xff", "n": null}`,
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%s\nwant\n%s", err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, err := conn.Exec(t.Context(), `SELECT weir.append('account', $1, 4, '\x44', '\x45', '{"\\x46": "\\x47"}', '\x48')`, name); err != nil {
		t.Fatal(err)
	}
	before := texts(t, conn, `SELECT s::text FROM weir.stream('account', $$`+name+`$$, 4) AS s`)
	carried(t, address)
	if after := texts(t, conn, `SELECT s::text FROM weir.stream('account', $$`+name+`$$, 4) AS s`); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("not carried: %s\ncarried: %s", before, after)
	}
}

func TestADamagedOrMissingEventIsAnErrorInSQL(t *testing.T) {
	address := pgtest.URL(t)
	_, c := startStreams(t, address, true)
	conn := connect(t, address)
	for range 3 {
		if _, err := c.Append(t.Context(), "a", stream.Any, stream.NewEvent{Type: "T", Data: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, `UPDATE weir.state SET value = set_byte(value, octet_length(value) - 1, 7) WHERE key LIKE 'stream/event/%1'`)
	if got := refusal(t, conn, `SELECT * FROM weir.stream('account', 'a')`); got.Code != "XX001" || !strings.Contains(got.Message, "version 1 was changed") {
		t.Errorf("damaged: %v", got)
	}
	exec(t, conn, `DELETE FROM weir.state WHERE key LIKE 'stream/event/%1'`)
	for _, rest := range []string{``, `, backward => true`} {
		if got := refusal(t, conn, `SELECT * FROM weir.stream('account', 'a'`+rest+`)`); got.Code != "XX001" || !strings.Contains(got.Message, "version 1 is missing") {
			t.Errorf("missing: %v", got)
		}
	}
}
