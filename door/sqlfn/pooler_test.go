package sqlfn_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// Sessions and weir itself behind a pooler that deals out connections by transaction, and a weir beside it that is not.
func TestBehindAPooler(t *testing.T) {
	for _, c := range []struct {
		name   string
		pooled bool
	}{{"all", true}, {"the sessions", false}} {
		t.Run(c.name, func(t *testing.T) {
			pooled, direct := pgtest.PooledURL(t)
			address := direct
			if c.pooled {
				address = pooled + "&weir_pooled=true"
			}
			p := start(t, address)
			p.create("orders", 3, nil)
			topic := p.filled("positions", 1)
			const sessions, each = 8, 50
			var publishers sync.WaitGroup
			for s := range sessions {
				publishers.Go(func() {
					conn, err := pgx.Connect(t.Context(), pooled+"&default_query_exec_mode=exec")
					if err != nil {
						t.Error(err)
						return
					}
					defer conn.Close(t.Context())
					for i := range each {
						err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
							_, err := tx.Exec(t.Context(), `SELECT weir.publish('orders', $1::text, $2::text)`, fmt.Sprint(s), fmt.Sprint(i))
							if err != nil {
								return err
							}
							_, err = tx.Exec(t.Context(), `SAVEPOINT s; SELECT weir.publish('orders', 'k', 'undone'); ROLLBACK TO s`)
							if err != nil {
								return err
							}
							_, err = tx.Exec(t.Context(), `SELECT weir.commit_offset($1::text, 'positions', 0, $2::bigint, $3::bigint)`, fmt.Sprint("g", s), i+1, i)
							return err
						})
						if err != nil {
							t.Errorf("session %d, transaction %d: %v", s, i, err)
							return
						}
					}
				})
			}
			publishers.Wait()
			next := map[string]int{}
			for _, e := range p.read("orders", sessions*each) {
				if e.Value != fmt.Sprint(next[e.Key]) {
					t.Fatalf("key %s: %s came, want %d", e.Key, e.Value, next[e.Key])
				}
				next[e.Key]++
			}
			for s := range sessions {
				p.carried(topic, fmt.Sprint("g", s), eventlog.Offset(each))
			}
		})
	}
}
