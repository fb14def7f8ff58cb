package sqlfn_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// Sessions and weir itself behind a pooler that deals out connections by transaction, and a weir
// beside it that is not.
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

// A pooler in transaction mode gives a session a connection for all of a CALL. Those who wait must
// leave weir the connections with which it answers.
func TestSessionsThatWaitBehindAPoolerLeaveWeirItsConnections(t *testing.T) {
	pooled, direct := pgtest.PooledURL(t)
	_, q := startQueues(t, pooled+"&weir_pooled=true", true)
	await(t, direct, `SELECT count(*) = 1 FROM weir.pool`)
	const sessions = 30 // the pool has 20 connections
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var workers sync.WaitGroup
	defer workers.Wait()
	got := make(chan string, sessions)
	for range sessions {
		workers.Go(func() {
			conn, err := pgx.Connect(t.Context(), pooled+"&default_query_exec_mode=exec")
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(t.Context())
			for ctx.Err() == nil {
				var messages string
				if err := conn.QueryRow(t.Context(), `CALL weir.claim('mail', 1, '1 hour', '3 s')`).Scan(&messages); err != nil {
					t.Error(err)
					return
				}
				if messages != "[]" {
					got <- messages
				}
			}
		})
	}
	await(t, direct, `SELECT count(*) = 4 FROM weir.claim_request WHERE answer IS NULL`)
	for i := range 10 {
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: fmt.Append(nil, "message ", i)}); err != nil {
			t.Error(err)
		}
		select {
		case m := <-got:
			if !strings.Contains(m, fmt.Sprint("message ", i)) {
				t.Errorf("claimed %s, want message %d", m, i)
			}
		case <-time.After(time.Minute):
			t.Fatalf("nobody got message %d", i)
		}
	}
	cancel()
}

func TestAPoolThatNoWeirUsesAnyMoreIsForgotten(t *testing.T) {
	address := pgtest.URL(t)
	start(t, address)
	pgtest.Exec(t, address, `INSERT INTO weir.pool VALUES ('weir', '10.0.0.1', now() - interval '61 minutes'), ('weir', '10.0.0.2', now() - interval '59 minutes')`)
	pgtest.Exec(t, address, `SELECT weir.note_pool()`)
	if got := pgtest.Value(t, address, `SELECT count(*) || ', first ' || min(address) FILTER (WHERE address LIKE '10%') FROM weir.pool`); got != "2, first 10.0.0.2" {
		t.Errorf("there are %s, want this session's own and 10.0.0.2", got)
	}
}
