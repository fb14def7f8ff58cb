package sqlfn_test

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// PREPARE TRANSACTION refuses what notified. Publishers notify while weir is idle, but not where
// the server allows prepared transactions.
func TestATransactionThatPublishesIsPreparedAlsoWhileWeirIsIdle(t *testing.T) {
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET max_prepared_transactions = 100`)
	srv.Restart()
	address := srv.URL()
	p := start(t, address)
	p.create("orders", 1, nil)
	pgtest.Exec(t, address, `SELECT setval('weir.hushed', 1)`) // as an idle mover does: since 1970 nobody has said that there is no need to notify
	conn := connect(t, address)
	name := rand.Text() // of the whole server
	for _, sql := range []string{
		`BEGIN`, `SELECT weir.publish('orders', 'k', 'v')`, fmt.Sprintf(`PREPARE TRANSACTION '%s'`, name), fmt.Sprintf(`COMMIT PREPARED '%s'`, name),
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if got := p.read("orders", 1); len(got) != 1 || got[0].Value != "v" {
		t.Errorf("events: %+v", got)
	}
}

// Each function that a transaction may call can be prepared, whether weir is idle, and wants to be
// notified, or under load.
func TestATransactionOfEachFunctionIsPreparedIdleAndUnderLoad(t *testing.T) {
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET max_prepared_transactions = 100`)
	srv.Restart()
	address := srv.URL()
	p, q := startQueues(t, address, false) // no mover, which would set the time until which nobody notifies
	startStreams(t, address, false)
	p.filled("orders", 1)
	conn := connect(t, address)
	name := rand.Text()
	for round, hushed := range map[string]string{"idle": "1", "load": "extract(epoch FROM now())::bigint + 3600"} {
		exec(t, conn, fmt.Sprintf(`SELECT setval('weir.hushed', %s)`, hushed))
		var receipts []string
		for range 3 {
			if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(round)}); err != nil {
				t.Fatal(err)
			}
			receipts = append(receipts, claim(t, q).Receipt)
		}
		group := "g-" + round
		for i, call := range []string{
			`weir.publish('orders', 'k', 'v')`,
			`weir.publish_all('orders', NULL, ARRAY['a', 'b'])`,
			`weir.enqueue('mail', '` + round + `')`,
			`weir.enqueue('mail', 'later', delay => '1 hour', unique_key => '` + round + `')`,
			`weir.ack('` + receipts[0] + `')`,
			`weir.nack('` + receipts[1] + `')`,
			`weir.extend('` + receipts[2] + `', '1 hour')`,
			`weir.commit_offset('` + group + `', 'orders', 0, 10)`,
			`weir.append('account', 'a', 'any', 'T', 'v')`,
		} {
			id := fmt.Sprint(name, round, i) // of the whole server
			for _, sql := range []string{`BEGIN`, `SELECT ` + call, `PREPARE TRANSACTION '` + id + `'`, `COMMIT PREPARED '` + id + `'`} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Errorf("%s, %s: %s: %v", round, call, sql, err)
					exec(t, conn, `ROLLBACK`)
					break
				}
			}
		}
		if at := position(t, conn, group); at != 10 {
			t.Errorf("%s: the group is at %d", round, at)
		}
		var told bool
		if err := conn.QueryRow(t.Context(), `SELECT to_timestamp(pg_sequence_last_value('weir.hushed')) <= clock_timestamp()`).Scan(&told); err != nil || told != (round == "idle") {
			t.Errorf("%s: weir wants to be notified: %v %v", round, told, err)
		}
	}
	exec(t, conn, `SELECT weir.append('account', 'a', 2, 'T', 'v')`) // the stream is at the version after what was prepared
	startQueues(t, address, true)
	eventually(t, "what was prepared is moved", func() bool { return pgtest.Value(t, address, `SELECT count(*) FROM weir.inbox`) == "0" })
}
