package sqlfn_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

// as returns the address for another role, whose password is plain.
func as(t *testing.T, address, role string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "plain")
	return u.String()
}

// attach opens a store and its door, and closes the store. It returns what was logged.
func attach(t *testing.T, address string) string {
	t.Helper()
	var log bytes.Buffer
	s, err := postgres.Open(t.Context(), address, postgres.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := sqlfn.Attach(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return log.String()
}

// lacking returns the roles that the doctor misses.
func lacking(t *testing.T, address string) (values []string) {
	t.Helper()
	findings, err := postgres.Examine(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range findings {
		if f.Name == "SQL role" && f.Level == doctor.Warn {
			values = append(values, f.Value)
		}
	}
	return values
}

// A dump has no roles: in another server they are missing, and so are all rights of programs.
func TestRolesThatAreMissingAfterARestoreAreMadeOrToldOf(t *testing.T) {
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE plain LOGIN PASSWORD 'plain'`)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE app LOGIN PASSWORD 'plain'`)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir_producer`)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir_consumer`)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir_reader`)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir_creator`)
	address := as(t, srv.URL(), "plain")
	name := pgtest.Value(t, address, `SELECT current_database()`)
	pgtest.Exec(t, srv.Admin(), `ALTER DATABASE `+name+` OWNER TO plain`)
	attach(t, address)
	if got := lacking(t, address); len(got) > 0 {
		t.Errorf("the doctor misses %q", got)
	}

	drop := func() {
		for _, role := range []string{"weir_producer", "weir_consumer", "weir_reader", "weir_creator"} {
			pgtest.Exec(t, srv.At(address), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		}
	}
	drop()
	want := []string{"weir_producer does not exist", "weir_consumer does not exist", "weir_reader does not exist", "weir_creator does not exist"}
	if log := attach(t, address); strings.Count(log, "level=WARN") != 4 || !strings.Contains(log, "weir_reader does not exist") {
		t.Errorf("a weir that may create no roles logged %s", log)
	}
	if got := lacking(t, address); !slices.Equal(got, want) {
		t.Errorf("the doctor misses %q, want %q", got, want)
	}

	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir_producer`) // by somebody who does not know of the rights
	attach(t, address)
	if got := lacking(t, address); !slices.Equal(got, want[1:]) {
		t.Errorf("a role was created, and the doctor misses %q, want %q", got, want[1:])
	}

	pgtest.Exec(t, srv.Admin(), `ALTER ROLE plain CREATEROLE`)
	attach(t, address)
	if got := lacking(t, address); len(got) > 0 {
		t.Errorf("weir may create roles, and the doctor misses %q", got)
	}
	pgtest.Exec(t, srv.Admin(), `GRANT weir_producer TO app`)
	start(t, address).create("orders", 1, nil)
	exec(t, connect(t, as(t, address, "app")), `SELECT weir.publish('orders', 'k', 'v')`)
}

// The default search path begins with the schema that has the role's name.
func TestTablesOfARoleNamedWeirAreNotAmongTheLogs(t *testing.T) {
	srv := pgtest.Start(t)
	pgtest.Exec(t, srv.Admin(), `CREATE ROLE weir LOGIN PASSWORD 'plain'`)
	path := func(address string) doctor.Level {
		findings, err := postgres.Examine(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Name == "first schema of the search path" {
				return f.Level
			}
		}
		t.Fatal("the doctor tells nothing of the search path")
		return 0
	}
	address := as(t, srv.URL(), "weir")
	name := pgtest.Value(t, address, `SELECT current_database()`)
	pgtest.Exec(t, srv.Admin(), `ALTER DATABASE `+name+` OWNER TO weir`)
	attach(t, address)
	pgtest.Exec(t, srv.At(address), `GRANT CREATE ON SCHEMA public TO weir`)
	pgtest.Exec(t, address, `CREATE TABLE orders (id int)`)
	if in := pgtest.Value(t, address, `SELECT relnamespace::regnamespace::text FROM pg_class WHERE relname = 'orders'`); in != "public" {
		t.Errorf("CREATE TABLE orders by role weir made it in schema %s", in)
	}
	if level := path(address); level != doctor.OK {
		t.Errorf("the doctor: %v", level)
	}

	// A database of before keeps its path, because programs may rely on it.
	pgtest.Exec(t, srv.Admin(), `ALTER ROLE weir IN DATABASE `+name+` RESET search_path`)
	attach(t, address)
	if level := path(address); level != doctor.Warn {
		t.Errorf("the doctor, where tables of the role are among the log's: %v", level)
	}
}
