package postgres_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/pgtest"
)

// Locks are held while a commit works: what it does for n partitions or keys must not grow with n
// times n. The rows are those that the plans of its statements visit, counted by the server.
func TestACommitVisitsAsManyRowsAsItHasPartitionsAndKeys(t *testing.T) {
	const n = 1000
	array := func(element string) string {
		return fmt.Sprintf(`(SELECT array_agg(%s ORDER BY n) FROM generate_series(1, %d) AS n)`, element, n)
	}
	same, one, zero := array(`n::int`), array(`1`), array(`0`)
	entries := array(`(n + 1) / 2`)
	ids, keys := array(`n::bigint`), array(`to_char(n, '"k"00000')`)
	const none = `'{}', '{}', '{}'`
	address := pgtest.URL(t)
	at(t, address)
	config, err := pgx.ParseConfig(address)
	if err != nil {
		t.Fatal(err)
	}
	visited := 0.0
	config.OnNotice = func(_ *pgconn.PgConn, said *pgconn.Notice) {
		_, plan, _ := strings.Cut(said.Message, "plan:")
		var p struct{ Plan planNode }
		if err := json.Unmarshal([]byte(plan), &p); err != nil {
			t.Errorf("%v: %s", err, said.Message)
		}
		visited += p.Plan.visited()
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `LOAD 'auto_explain'`); err != nil {
		t.Skipf("this PostgreSQL has no auto_explain: %v", err)
	}
	begin(t, conn, `SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on; SET auto_explain.log_format = 'json';
		SET auto_explain.log_analyze = on; SET auto_explain.log_level = notice`)
	for _, c := range []struct{ name, statement string }{
		{"refusing what has no partition", `SELECT weir.commit(` + ids + `, '{}', ` + entries + `, ` + same + `, ` + one + `, ` + ids + `, ` + zero + `, ` + one + `, ` + none + `, '{}', ` + none + `, '{}', '{}', 'abc', '{}')`},
		{"opening partitions", `SELECT weir.commit(` + ids + `, '{}', ` + entries + `, ` + same + `, ` + zero + `, ` + ids + `, ` + zero + `, ` + zero + `, ` + none + `, '{}', ` + none + `, '{}', '{}', '', '{}')`},
		{"appending to partitions", `SELECT weir.commit(` + ids + `, '{}', ` + entries + `, ` + same + `, ` + one + `, ` + ids + `, ` + zero + `, ` + one + `, ` + none + `, '{}', ` + none + `, '{}', '{}', 'abc', '{}')`},
		{"putting new keys", `SELECT weir.commit('{}', ` + keys + `, '{}', '{}', '{}', '{}', '{}', '{}', ` + none + `, ` + entries + `, ` + same + `, ` + ids + `, ` + zero + `, ` + one + `, ` + zero + `, 'abc', '{}')`},
		{"putting keys that are there, with checks", `SELECT weir.commit('{}', ` + keys + `, '{}', '{}', '{}', '{}', '{}', '{}', ` + entries + `, ` + same + `, ` + ids + `, ` + entries + `, ` + same + `, ` + ids + `, ` + zero + `, ` + one + `, ` + zero + `, 'abc', '{}')`},
		{"forgetting keys", `SELECT weir.commit('{}', ` + keys + `, '{}', '{}', '{}', '{}', '{}', '{}', ` + none + `, ` + entries + `, ` + same + `, ` + ids + `, ` + zero + `, ` + array(`-1`) + `, ` + zero + `, '', '{}')`},
	} {
		visited = 0
		begin(t, conn, c.statement)
		t.Logf("%s: %.0f rows for %d", c.name, visited, n)
		if visited < n || visited > 50*n {
			t.Errorf("%s: the plans visit %.0f rows for %d", c.name, visited, n)
		}
	}
}

// planNode is a node of a plan that the server logged.
type planNode struct {
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Joined  float64 `json:"Rows Removed by Join Filter"`
	Plans   []planNode
}

// visited counts the rows that a node and those below it had in hand.
func (n planNode) visited() float64 {
	rows := (n.Rows + n.Removed + n.Joined) * n.Loops
	for _, p := range n.Plans {
		rows += p.visited()
	}
	return rows
}
