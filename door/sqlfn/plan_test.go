package sqlfn

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// pages counts the pages that a statement reads, with the plan of a new session. What it does is
// undone.
func pages(t *testing.T, address, sql string, args ...any) int {
	t.Helper()
	conn := session(t, address)
	run(t, conn, `BEGIN`)
	defer run(t, conn, `ROLLBACK`)
	var text string
	if err := conn.QueryRow(t.Context(), `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) `+sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var plans []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal([]byte(text), &plans); err != nil {
		t.Fatal(err)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read
}

// The statistics are of the inbox as it was when autoanalyze came by: empty, full, or emptied. A
// move costs about the same.
func TestAMoveCostsTheSameWhateverTheStatisticsSay(t *testing.T) {
	const rows = 2000
	for name, before := range map[string]string{
		"empty":   `VACUUM ANALYZE weir.inbox`,
		"full":    `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'v' FROM generate_series(1, 20000))); ANALYZE weir.inbox`,
		"emptied": `SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'v' FROM generate_series(1, 20000))); DELETE FROM weir.inbox; ANALYZE weir.inbox`,
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			openInbox(t, address)
			conn := session(t, address)
			for _, sql := range strings.Split(before, "; ") {
				run(t, conn, sql)
			}
			run(t, conn, fmt.Sprintf(`SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'v' FROM generate_series(1, %d)))`, rows))
			n := pages(t, address, fmt.Sprintf(`SELECT weir.delete_rows(ARRAY(SELECT id FROM weir.inbox ORDER BY id DESC LIMIT %d))`, rows))
			t.Logf("%d rows, %d pages", rows, n)
			if n > 10*rows {
				t.Errorf("to take %d rows reads %d pages", rows, n)
			}
		})
	}
}

// await waits until a query says true.
func await(t *testing.T, address, sql string) {
	t.Helper()
	for late := time.Now().Add(time.Minute); pgtest.Value(t, address, sql) != "true"; {
		if time.Now().After(late) {
			t.Fatalf("a minute went by, and not yet: %s", sql)
		}
	}
}

// Autoanalyze comes by while the inbox is empty, by itself. What is published then is carried at
// the cost of what it is: counted in pages.
func TestAfterARealAutoanalyzeOfAnEmptyInboxMovesCostWhatTheyMove(t *testing.T) {
	const rows = 20_000
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET autovacuum_naptime = '1s'`)
	pgtest.Exec(t, srv.Admin(), `SELECT pg_reload_conf()`)
	address := srv.URL()
	publish := fmt.Sprintf(`SELECT weir.publish_all('orders', NULL, ARRAY(SELECT 'v' FROM generate_series(1, %d)))`, rows)
	m := still(t, address)
	if _, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, `ALTER TABLE weir.inbox SET (autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0, autovacuum_vacuum_threshold = 1000)`)
	drain := func(m *Mover) {
		t.Helper()
		for pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) != "0" {
			if _, err := m.step(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	pgtest.Exec(t, address, publish)
	drain(m)
	await(t, address, `SELECT c.reltuples = 0 AND s.last_autoanalyze IS NOT NULL FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid WHERE c.oid = 'weir.inbox'::regclass`)
	pgtest.Exec(t, address, `ALTER TABLE weir.inbox SET (autovacuum_enabled = off)`)
	m.door.store.Close() // its counts are told

	fresh := still(t, address) // its plans are made of the statistics of the empty table
	pgtest.Exec(t, address, publish)
	pages := func() int {
		t.Helper()
		const sql = `SELECT heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read FROM pg_statio_user_tables WHERE relid = 'weir.inbox'::regclass`
		n, err := strconv.Atoi(pgtest.Value(t, address, sql))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := pages()
	drain(fresh)
	fresh.door.store.Close()
	n := pages() - before
	t.Logf("to carry %d rows %d pages of the inbox were read", rows, n)
	if n > 20*rows {
		t.Errorf("to carry %d rows %d pages of the inbox were read", rows, n)
	}
	if got := pgtest.Value(t, address, `SELECT records FROM weir.topics WHERE name = 'orders'`); got != fmt.Sprint(2*rows) {
		t.Errorf("the topic holds %s records, want %d", got, 2*rows)
	}
}
