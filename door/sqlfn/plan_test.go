package sqlfn

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/pgtest"
)

// pages counts the pages that a statement reads, with the plan of a new session. What it does is undone.
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

// The statistics are of the inbox as it was when autoanalyze came by: empty, full, or emptied. A move costs about the same.
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
			n := pages(t, address, fmt.Sprintf(`SELECT weir.take(ARRAY(SELECT id FROM weir.inbox ORDER BY id DESC LIMIT %d))`, rows))
			t.Logf("%d rows, %d pages", rows, n)
			if n > 10*rows {
				t.Errorf("to take %d rows reads %d pages", rows, n)
			}
		})
	}
}
