package sqlfn_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/use/queue"
)

// notified returns the channels on which a session notified since the last call.
func notified(t *testing.T, session, listener *pgx.Conn) (channels []string) {
	t.Helper()
	exec(t, session, `NOTIFY test_end`)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if n.Channel == "test_end" {
			return channels
		}
		channels = append(channels, n.Channel)
	}
}

// A transaction that notified cannot commit once the server's notification queue is full. So above
// half nobody notifies, and polls find what is new.
func TestNobodyNotifiesWhileHalfOfTheNotificationQueueIsUsed(t *testing.T) {
	address := pgtest.URL(t)
	pgtest.SetNotifyUsage(t, address, "0.5")
	p, q := startQueues(t, address, true)
	p.create("orders", 1, nil)
	conn, listener := connect(t, address), connect(t, address)
	exec(t, listener, `LISTEN weir; LISTEN weir_inbox; LISTEN weir_claim; LISTEN test_end`)
	eventually(t, "the weir knows of the queue's usage", func() bool { return p.store.NotificationQueueUsage() == 0.5 })
	if p.store.Listening() {
		t.Error("the store expects notifications")
	}
	eventually(t, "publishers may notify", func() bool { return notifies(t, address) })
	for _, call := range []string{
		`SELECT weir.publish('orders', 'k', 'v')`,
		`SELECT weir.publish_all('orders', NULL, ARRAY['a', 'b'])`,
		`SELECT weir.enqueue('mail', 'hello')`,
	} {
		exec(t, conn, call)
	}
	p.read("orders", 3)
	var messages string
	if err := conn.QueryRow(t.Context(), `CALL weir.claim('mail', wait => '30 s')`).Scan(&messages); err != nil || !strings.Contains(messages, "hello") {
		t.Errorf("a claim got %s, %v", messages, err)
	}
	if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("from elsewhere")}); err != nil { // a commit of the store
		t.Fatal(err)
	}
	if got := notified(t, conn, listener); len(got) > 0 {
		t.Errorf("although half of the queue is used, weir notified on %q", got)
	}

	pgtest.SetNotifyUsage(t, address, "0.49")
	other := connect(t, address)
	eventually(t, "publishers notify", func() bool {
		exec(t, other, `SELECT weir.publish('orders', 'k', 'v')`)
		return len(notified(t, other, listener)) > 0
	})
}

// Any program's listener that stays in a transaction keeps the server from emptying the queue.
func TestAFullNotificationQueueFailsNoTransaction(t *testing.T) {
	srv := pgtest.Start(t)
	if pgtest.Value(t, srv.Admin(), `SELECT current_setting('server_version_num')::int < 170000`) == "true" {
		t.Skip("before PostgreSQL 17 the queue always has 8 GB")
	}
	pgtest.Exec(t, srv.Admin(), `ALTER SYSTEM SET max_notify_queue_pages = 64`)
	srv.Restart()
	address := srv.URL()
	p, _ := startQueues(t, address, true)
	p.create("orders", 1, nil)
	conn, listener := connect(t, address), connect(t, address)
	exec(t, listener, `LISTEN other`)
	exec(t, listener, `BEGIN`)
	exec(t, listener, `SELECT 1`)
	for {
		_, err := conn.Exec(t.Context(), `SELECT pg_notify('other', repeat('x', 7000))`)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && strings.Contains(refused.Message, "too many notifications") {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	exec(t, conn, `CREATE TABLE bought (id int)`)
	for _, sql := range []string{`BEGIN`, `INSERT INTO bought VALUES (1)`, `SELECT weir.publish('orders', 'k', 'v'), weir.enqueue('mail', 'm')`, `COMMIT`} {
		exec(t, conn, sql)
	}
	p.read("orders", 1)
	var messages string
	if err := conn.QueryRow(t.Context(), `CALL weir.claim('mail', wait => '30 s')`).Scan(&messages); err != nil || len(messages) < 10 {
		t.Errorf("a claim got %s, %v", messages, err)
	}
}

// A function that notifies by itself would fail its caller's COMMIT.
func TestOnlyOneFunctionNotifies(t *testing.T) {
	address := pgtest.URL(t)
	start(t, address)
	others := pgtest.Value(t, address, `SELECT coalesce(string_agg(proname, ' '), '') FROM pg_proc WHERE pronamespace = 'weir'::regnamespace AND prosrc ~* '(pg_notify|NOTIFY )' AND proname <> 'notify'`)
	if others != "" {
		t.Errorf("functions that notify, beside weir.notify: %s", others)
	}
}
