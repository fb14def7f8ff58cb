package tour

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/internal/pgtest"
)

const sqlPage = "../../docs/sql.md"

// Each block of the page is run in its place, on the database that it is for. What stands in
// comments behind a statement is printed: values, or the columns of a view.
func TestTheSQLOfThePageIsRunAsItStands(t *testing.T) {
	database, maria := pgtest.Start(t).URL(), mytest.Start(t)
	mytest.Exec(t, maria.Admin(), `CREATE DATABASE weir`, `CREATE USER shop, analyst, billing`)
	u := parsed(t, maria.Admin())
	u.Path = "/weir"
	const postgres = `sql() { psql -XqA -F ', ' -v ON_ERROR_STOP=1 "$DATABASE"; }`
	mariadb := "sql() { mariadb --batch -h " + u.Hostname() + " -P " + u.Port() + " -u " + u.User.Username() + " weir; }"
	on := func(sh *shell, store, sql string) {
		t.Helper()
		sh.must(stopWeir + "\nexport WEIR_STORE='" + store + "'; " + sql)
		sh.starts()
	}
	feed := func(sh *shell, statements string) string {
		t.Helper()
		return strings.TrimSpace(sh.must("sql <<'END'\n" + statements + "\nEND"))
	}
	comes := func(sh *shell, events string) {
		t.Helper()
		if got := sh.must(fmt.Sprintf("weir consume orders --follow --max %d", strings.Count(events, "\n"))); !matches(got, events) {
			t.Errorf("the topic has\n%s\nwant\n%s", got, events)
		}
	}
	stage{
		page: sqlPage, env: []string{"DATABASE=" + database, "WEIR_STORE=" + database}, feeds: "sql",
		named: []string{
			"worker => 'billing-1');", `worker => 'billing-1') \gset`, "'9f3c21…'", ":'messages'::jsonb -> 0 ->> 'receipt'",
			"bills …", "bills VALUES (1)", "invoice …", "invoice VALUES (1)",
		},
		samples: []string{
			"at once, in the same migration", "the newest", "the receipt of a message", "the last five of each partition", // of PostgreSQL
			"publish, publish_all, tombstone, enqueue, enqueue_all, enqueue_id, enqueue_all_ids, message_state, append, append_all", "commit_offset, commit_offset_by_id, position, claim, ack, nack, extend, and what weir_reader has",
			"create_topic, create_queue, create_category, and weir.creations", "events, last_events, stream, state_at, message_state, and the views",
			"with headers, and a partition or NULL", "MariaDB and MySQL", "SQLite, in the log's own file", // and of the others
			"topic, partition, the offset to begin at, at most how many events (1 to 10000)", "topic, partition_number, first_offset, next_offset, bytes",
			"consumer, topic, partition, at most so many events", "for each row of the result", "and weir_publish_event", "for PublishSQLTx", "and weir_partitions",
		},
		before: map[string]func(*shell){
			"BEGIN;\nCREATE TABLE orders": func(sh *shell) { sh.must(postgres); sh.starts() },
			"SELECT state, attempts": func(sh *shell) { // no worker can send what is in the queue
				sh.must(`until sql <<< "SELECT state FROM weir.message_state('mail', (SELECT mail FROM orders))" | grep -x dead; do sql <<'END'
					CALL weir.claim('mail', 10, wait => '1 s') \gset
					SELECT weir.nack(m ->> 'receipt', 'no such address', delay => '0') FROM jsonb_array_elements(:'messages'::jsonb) AS m;
END
				done`)
			},
			"BEGIN;\nUPDATE accounts": func(sh *shell) {
				feed(sh, `CREATE TABLE accounts (id int, balance int); SELECT weir.create_category('account')`)
				sh.must(`until sql <<< "SELECT state FROM weir.creations WHERE name = 'account'" | grep -x done; do :; done`)
				feed(sh, `SELECT weir.append_all('account', '4711', 'none', ARRAY['Opened', 'Deposited'], ARRAY['{"owner": "ann"}', '{"amount": 120}'],
					at => ARRAY['2026-01-02', '2026-01-03']::timestamptz[])`)
			},
			"CALL weir.claim('mail', 10": func(sh *shell) { feed(sh, `CREATE TABLE bills (id int); SELECT weir.enqueue('mail', 'x')`) },
			"DO $$ DECLARE m jsonb; BEGIN": func(sh *shell) {
				sh.must(`until sql <<< "SELECT count(*) FROM weir.acked" | grep -x 0; do :; done`)
			},
			"SELECT weir.position": func(sh *shell) {
				feed(sh, `CREATE TABLE invoice (id int); SELECT weir.publish('orders', NULL, jsonb_build_object('id', n), partition => 0) FROM generate_series(1, 1400) AS n`)
				sh.must(`until sql <<< "SELECT next_offset > 1399 FROM weir.partitions WHERE topic = 'orders' AND partition = 0" | grep -x t; do :; done`)
				feed(sh, `SELECT weir.commit_offset('billing', 'orders', 0, 1200)`)
			},
			"SELECT partition": func(sh *shell) {
				if got := feed(sh, `SELECT count(*) > 0, weir.position('billing', 'orders', 0) - count(*) AS began FROM invoice`); !hasLines(got, "t, 1200") {
					t.Errorf("of the invoices and the offset is said\n%s", got)
				}
				feed(sh, `CREATE TABLE customer (id int, name text); INSERT INTO customer VALUES (7, 'ann')`)
			},
			"GRANT weir_producer": func(sh *shell) {
				feed(sh, `CREATE ROLE shop; CREATE ROLE billing; CREATE ROLE migrations; CREATE ROLE analyst`)
			},
			"CREATE ROLE weir_producer": func(sh *shell) {
				rightsAreThose(t, database)
				feed(sh, `DROP OWNED BY weir_producer, weir_consumer, weir_reader, weir_creator; DROP ROLE weir_producer, weir_consumer, weir_reader, weir_creator`)
			},
			"START TRANSACTION;        ": func(sh *shell) {
				grant := inline(t, sqlPage, "SELECT weir.grant_to")[0]
				for _, role := range []string{"producer", "consumer", "reader", "creator"} {
					feed(sh, strings.ReplaceAll(grant, "producer", role))
				}
				rightsAreThose(t, database)
				on(sh, u.String(), mariadb)
				sh.must("weir topic create orders")
				feed(sh, `CREATE TABLE orders (id int, customer int); CREATE TABLE invoice (id int)`)
			},
			"BEGIN IMMEDIATE": func(sh *shell) {
				comes(sh, "{\"id\": 42}\n{\"id\": 43}\n")
				sh.has("sqlite3")
				on(sh, "sqlite:weir.db", "sql() { sqlite3 -bail -cmd '.timeout 60000' weir.db; }")
				sh.must("weir topic create orders")
				feed(sh, `CREATE TABLE bills (id int, customer int);`)
			},
			"CALL weir_events": func(sh *shell) {
				comes(sh, "{\"id\": 42}\n")
				on(sh, u.String(), mariadb)
			},
		},
	}.replay(t)
}

// rightsAreThose compares what the four roles may execute with what the page says behind GRANT.
func rightsAreThose(t *testing.T, database string) {
	t.Helper()
	named := make(map[string][]string)
	for _, f := range fencesOf(t, sqlPage, "## Who may do what") {
		for _, m := range regexp.MustCompile(`GRANT (\w+) TO .*-- ([a-z0-9_, ]+)`).FindAllStringSubmatch(f.text, -1) {
			named[m[1]] = strings.Split(m[2], ", ")
		}
	}
	for role, names := range named {
		if names[len(names)-1] == "and what weir_reader has" {
			names = append(names, named["weir_reader"]...)
		}
		names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.HasPrefix(name, "and ") })
		slices.Sort(names)
		may := pgtest.Value(t, database, `SELECT string_agg(DISTINCT proname::text COLLATE "C", ', ' ORDER BY proname::text COLLATE "C") FROM pg_proc AS p
			WHERE pronamespace = 'weir'::regnamespace AND has_function_privilege('`+role+`', oid, 'EXECUTE') AND obj_description(oid, 'pg_proc') NOT LIKE 'Internal%'`)
		if said := strings.Join(names, ", "); said != may {
			t.Errorf("%s may execute %s, and the page says %s", role, may, said)
		}
	}
	if len(named) != 4 {
		t.Errorf("the page has the roles %v", named)
	}
}
