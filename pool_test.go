package weir_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/internal/pgtest"
)

// The pool's own configuration names a database that does not exist: its BeforeConnect knows the
// right one, as others know the password of the hour.
func TestALogConnectsAsAPoolDoesAndTakesNoneOfItsConnections(t *testing.T) {
	right, err := pgx.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		config, err := pgxpool.ParseConfig(right.ConnString())
		if err != nil {
			t.Fatal(err)
		}
		var hooks atomic.Int32
		config.MaxConns = 1
		config.ConnConfig.Database, config.ConnConfig.DefaultQueryExecMode = "nowhere", mode
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error { c.Database = right.Database; return nil }
		config.AfterConnect = func(context.Context, *pgx.Conn) error { hooks.Add(1); return nil }
		config.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { hooks.Add(1); return true, nil }
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		held, err := pool.Acquire(t.Context()) // the only one
		if err != nil {
			t.Fatal(err)
		}
		hooks.Store(0)
		w, err := weir.OpenPool(t.Context(), pool, weir.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Poll: 10 * time.Millisecond})
		if err != nil {
			t.Fatalf("%v: %v", mode, err)
		}
		topic := "t" + strings.ReplaceAll(mode.String(), " ", "-")
		ensure(t, w, topic, 1)
		tx, err := held.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := w.PublishTx(t.Context(), tx, events(topic, "a")...); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		held.Release()
		pool.Close()
		got := &seen{}
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{topic}, Handler: got.note})
		publish(t, w, topic, "b")
		got.wait(t, 2)
		if n := hooks.Load(); n != 0 {
			t.Errorf("%v: the pool's other hooks were called %d times", mode, n)
		}
		closeLog(t, w)
	}
}

func TestAPoolWithoutADatabaseIsToldSo(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://weir:secret@127.0.0.1:1/nowhere?connect_timeout=1")
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	_, err = weir.OpenPool(t.Context(), pool, weir.Options{})
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1/nowhere") || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

// A login that may publish and enqueue, and nothing else, cannot open the log.
func TestATxPublisherNeedsNoMoreThanWeirProducer(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	ensure(t, w, "orders", 3)
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail"}); err != nil {
		t.Fatal(err)
	}
	role := "weir_test_" + strings.ToLower(rand.Text()[:12])
	pgtest.Exec(t, s.url, `CREATE ROLE `+role+` LOGIN PASSWORD 'plain'; GRANT weir_producer TO `+role)
	t.Cleanup(func() { pgtest.Exec(t, s.url, `DROP OWNED BY `+role+`; DROP ROLE `+role) })
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "plain")
	if opened, err := weir.Open(t.Context(), u.String(), weir.Options{}); err == nil {
		closeLog(t, opened)
		t.Error("it opened the log")
	}

	var to weir.TxPublisher
	conn, err := pgx.Connect(t.Context(), u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, commit := range []bool{false, true} {
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if err := to.PublishTx(t.Context(), tx, events("orders", "k=1", "k=2")...); err != nil {
				return err
			}
			if err := to.EnqueueTx(t.Context(), tx, "mail", weir.NewMessage{Value: []byte("m1")}); err != nil || commit {
				return err
			}
			return context.Canceled // rolls back
		})
		if commit == (err != nil) {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := to.PublishSQLTx(t.Context(), tx, events("orders", "k=3")...); err != nil {
		t.Fatal(err)
	}
	if err := to.EnqueueSQLTx(t.Context(), tx, "mail", weir.NewMessage{Value: []byte("m2")}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}

	got, jobs := &seen{}, &seen{}
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: 1, Handler: func(ctx context.Context, j weir.Job) error {
		return jobs.note(ctx, weir.Event{Value: j.Value})
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close(context.WithoutCancel(t.Context()))
	if came := values(got.wait(t, 3)); strings.Join(came, " ") != "1 2 3" {
		t.Errorf("published: %q", came)
	}
	if came := values(jobs.wait(t, 2)); strings.Join(came, " ") != "m1 m2" {
		t.Errorf("enqueued: %q", came)
	}
}
