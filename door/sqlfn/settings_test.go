package sqlfn_test

import (
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// A role or a database may have any of these settings. What weir relies on it sets itself, for its
// own sessions and within its functions.
func TestSettingsOfARoleOrADatabaseChangeNothing(t *testing.T) {
	for name, settings := range map[string][]string{
		"strings": {"standard_conforming_strings = off", "backslash_quote = off"},
		"arrays":  {"array_nulls = off"},
		"text": {"bytea_output = escape", "DateStyle = 'SQL, DMY'", "IntervalStyle = sql_standard", "TimeZone = 'America/St_Johns'", "extra_float_digits = -15",
			"quote_all_identifiers = on", "transform_null_equals = on"},
		"transactions": {"default_transaction_deferrable = on", "synchronous_commit = off"},
		"others":       {"search_path = pg_temp", "check_function_bodies = off", "row_security = off", "client_min_messages = error", "plan_cache_mode = force_custom_plan", "enable_indexscan = off"},
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			for _, setting := range settings {
				pgtest.Exec(t, address, `ALTER DATABASE `+pgtest.Value(t, address, `SELECT current_database()`)+` SET `+setting)
			}
			p, q := startQueues(t, address, true)
			startStreams(t, address, false)
			p.create("orders", 2, nil)
			conn := connect(t, address)
			exec(t, conn, `SELECT weir.publish('orders', E'k\\', E'v\\''"', E'{"h": "\\\\x00", "null": null, "NULL": "NULL"}')`)
			exec(t, conn, `SELECT weir.publish('orders', NULL::text, 'null', '{"a": null, "b": "1"}')`)
			exec(t, conn, `SELECT weir.publish_all('orders', ARRAY[NULL, 'NULL'], ARRAY['{}', 'NULL'])`)
			exec(t, conn, `SELECT weir.tombstone('orders', 'k')`)
			p.read("orders", 5)
			if got := texts(t, conn, `SELECT format('%s %s %s', key_text, value_text, headers) FROM weir.events('orders') ORDER BY 1`); strings.Join(got, "; ") !=
				` null {"a": null, "b": "1"};  {} {}; NULL NULL {}; k  {}; k\ v\'" {"h": "\\x5c783030", "NULL": "NULL", "null": null}` {
				t.Errorf("events: %q", got)
			}
			exec(t, conn, `SELECT * FROM weir.last_events('orders', 2), weir.topics, weir.partitions, weir.groups`)

			exec(t, conn, `SELECT weir.enqueue('mail', 'm'), weir.enqueue('mail', 'later', '{}', delay => '1 hour', unique_key => 'u')`)
			var messages, receipt string
			if err := conn.QueryRow(t.Context(), `CALL weir.claim('mail', wait => '30 s', lease => '1 min')`).Scan(&messages); err != nil {
				t.Fatal(err)
			}
			if err := conn.QueryRow(t.Context(), `SELECT $1::jsonb -> 0 ->> 'receipt'`, messages).Scan(&receipt); err != nil {
				t.Fatal(err)
			}
			exec(t, conn, `SELECT weir.extend($1, '2 min')`, receipt)
			exec(t, conn, `SELECT weir.ack($1)`, receipt)
			empties(t, address)
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("m")}); err != nil {
				t.Fatal(err)
			}
			exec(t, conn, `SELECT * FROM weir.queues, weir.messages`)

			exec(t, conn, `SELECT weir.append('account', E's\\', 'none', 'T', E'{"a": "\\\\"}', '{"m": null}', id => 'i', at => '2026-01-31 08:00:00.123Z')`)
			for range 2 { // before and after it is carried
				if got := texts(t, conn, `SELECT format('%s %s %s %s', data_text, metadata, id, extract(epoch FROM time)::numeric(20, 3)) FROM weir.stream('account', E's\\')`); strings.Join(got, "; ") !=
					`{"a": "\\"} {"m": null} i 1769846400.123` {
					t.Errorf("stream: %q", got)
				}
				if got := texts(t, conn, `SELECT state::text FROM weir.state_at('account', E's\\', '2026-01-31 08:00:01Z')`); strings.Join(got, "; ") != `{"a": "\\"}` {
					t.Errorf("state: %q", got)
				}
				carried(t, address)
			}
			exec(t, conn, `SELECT * FROM weir.streams WHERE category = 'account'`)
			exec(t, conn, `SELECT weir.commit_offset('g', 'account', 0, 0)`)
		})
	}
}
