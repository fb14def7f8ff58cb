package weir_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/weir-log/weir"
)

// program opens a database as any program could.
func program(t *testing.T, url string) *sql.DB {
	t.Helper()
	driver, source := "sqlite", strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(10000)&_txlock=immediate"
	if server, is := strings.CutPrefix(url, "mysql://"); is {
		user, rest, _ := strings.Cut(server, "@")
		config := mysql.NewConfig()
		config.User, config.Net = user, "tcp"
		config.Addr, config.DBName, _ = strings.Cut(rest, "/")
		driver, source = "mysql", config.FormatDSN()
	}
	if strings.HasPrefix(url, "postgres") {
		driver, source = "pgx", url
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Events and the program's own rows exist exactly if the transaction commits, on MariaDB and
// SQLite.
func TestPublishSQLTxOnOtherDatabases(t *testing.T) {
	for _, kind := range []string{"mysql", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kind)
			w := s.open(t)
			ensure(t, w, "orders", 1)
			db := program(t, s.url)
			if _, err := db.Exec("CREATE TABLE bills (id INTEGER PRIMARY KEY)"); err != nil {
				t.Fatal(err)
			}
			var want []string
			for n := range 20 {
				tx, err := db.Begin()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec(fmt.Sprintf("INSERT INTO bills VALUES (%d)", n)); err != nil {
					t.Fatal(err)
				}
				e := weir.Event{Topic: "orders", Key: []byte("k"), Value: []byte(fmt.Sprint(n)), Headers: []weir.Header{{Key: "a", Value: []byte("1")}}}
				if err := w.PublishSQLTx(t.Context(), tx, e, e); err != nil {
					t.Fatal(err)
				}
				if n%3 == 0 {
					err = tx.Rollback()
				} else {
					want = append(want, fmt.Sprint(n), fmt.Sprint(n))
					err = tx.Commit()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			sub := weir.Subscription{Group: "g", Topics: []string{"orders"}}
			events := make(chan weir.Event)
			sub.Handler = func(_ context.Context, e weir.Event) error {
				events <- e
				return nil
			}
			c, err := w.Consume(t.Context(), sub)
			if err != nil {
				t.Fatal(err)
			}
			for range want {
				e := <-events
				if len(e.Headers) != 1 || string(e.Headers[0].Value) != "1" {
					t.Errorf("the headers of %s are %v", e.Value, e.Headers)
				}
				got = append(got, string(e.Value))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%v, want %v", got, want)
			}
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			bounds, err := w.Bounds(t.Context(), "orders")
			if err != nil || bounds[0].Next != int64(len(want)) {
				t.Errorf("%v, %v, want %d events", bounds, err, len(want))
			}
		})
	}
}

func TestPublishSQLTxRefusesOnOtherDatabases(t *testing.T) {
	for _, kind := range []string{"mysql", "sqlite"} {
		t.Run(kind, func(t *testing.T) {
			s := newSite(t, kind)
			w := s.open(t)
			ensure(t, w, "orders", 1)
			db := program(t, s.url)
			var invalid *weir.InvalidError
			for name, c := range map[string]struct {
				event weir.Event
				is    func(error) bool
			}{
				"unknown topic": {weir.Event{Topic: "nobody", Value: []byte("v")}, func(err error) bool { return errors.Is(err, weir.ErrUnknownTopic) }},
				"nothing":       {weir.Event{Topic: "orders"}, func(err error) bool { return errors.As(err, &invalid) }},
				"too large":     {weir.Event{Topic: "orders", Value: make([]byte, 2<<20)}, func(err error) bool { return errors.Is(err, weir.ErrTooLarge) }},
				"no text":       {weir.Event{Topic: "orders", Value: []byte("v"), Headers: []weir.Header{{Key: "a", Value: []byte{0xff}}}}, func(err error) bool { return errors.As(err, &invalid) }},
			} {
				if err := w.PublishSQLTx(t.Context(), db, c.event); !c.is(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
			other := program(t, newSite(t, kind).url)
			if kind == "sqlite" {
				if _, err := other.Exec("CREATE TABLE t (n INTEGER)"); err != nil {
					t.Fatal(err)
				}
			}
			err := w.PublishSQLTx(t.Context(), other, weir.Event{Topic: "orders", Value: []byte("v")})
			if err == nil || !strings.Contains(err.Error(), "not on the database that holds the log") {
				t.Errorf("on another database: %v", err)
			}
		})
	}
}
