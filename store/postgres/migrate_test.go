package postgres_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/postgres"
)

func TestManyMayOpenAnEmptyDatabaseAtOnce(t *testing.T) {
	address := pgtest.URL(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := postgres.Open(t.Context(), address, postgres.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			s.Close()
		})
	}
	all.Wait()
	if got := pgtest.Value(t, address, `SELECT count(*) FROM weir.migration`); got != strconv.Itoa(postgres.Scripts()) {
		t.Errorf("%s of %d migrations ran", got, postgres.Scripts())
	}
	openPartitions(t, at(t, address), 1)
}

// as returns the address of a database for a plain role that must make do with what it is given.
func as(t *testing.T, address, grants string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	database := strings.TrimPrefix(u.Path, "/")
	role := database + "_role"
	pgtest.Exec(t, address, fmt.Sprintf(`CREATE ROLE %s LOGIN PASSWORD 'plain'`, role))
	t.Cleanup(func() { pgtest.Exec(t, address, fmt.Sprintf(`DROP OWNED BY %s; DROP ROLE %s`, role, role)) })
	pgtest.Exec(t, address, strings.NewReplacer("{database}", database, "{role}", role).Replace(grants))
	u.User = url.UserPassword(role, "plain")
	return u.String()
}

func TestAPlainRoleWillDo(t *testing.T) {
	for name, grants := range map[string]string{
		"that may create schemas":   `GRANT CREATE ON DATABASE {database} TO {role}`,
		"that is given the schema":  `CREATE SCHEMA weir AUTHORIZATION {role}`,
		"that may use an empty one": `CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO {role}`,
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			mine := as(t, address, grants)
			s := at(t, mine)
			openPartitions(t, s, 1)
			publish(t, s, batch(1, 10))
			trim(t, s, 1, 1)
			if _, err := s.Tidy(t.Context()); err != nil {
				t.Error(err)
			}
			s.Close()
			at(t, mine).Close()
		})
	}
}

func TestADatabaseThatWillNotDoIsRefusedWithAdvice(t *testing.T) {
	for name, c := range map[string]struct{ make, grants, want string }{
		"nothing granted": {"", `SELECT`, "CREATE SCHEMA weir AUTHORIZATION"},
		"schema of another": {
			`CREATE SCHEMA weir; CREATE TABLE weir.river (height int)`, `GRANT ALL ON SCHEMA weir TO {role}`, "give weir another database"},
		"schema without a grant": {`CREATE SCHEMA weir`, `SELECT`, "GRANT ALL ON SCHEMA weir TO"},
		"read only":              {"", `ALTER ROLE {role} SET default_transaction_read_only = on; GRANT CREATE ON DATABASE {database} TO {role}`, "default_transaction_read_only = off"},
	} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			if c.make != "" {
				pgtest.Exec(t, address, c.make)
			}
			_, err := postgres.Open(t.Context(), as(t, address, c.grants), postgres.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want advice with %q", err, c.want)
			}
		})
	}
}

// What the role may not do itself is said, with what to do about it.
func TestARoleThatMayNotOpenTheSchemaToOthersSaysSo(t *testing.T) {
	address := pgtest.URL(t)
	mine := as(t, address, `CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO {role}`)
	at(t, address).Close() // the three roles are there, whoever made them
	pgtest.Exec(t, address, `DROP SCHEMA weir CASCADE; CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO `+roleOf(t, mine))
	open := func() string {
		t.Helper()
		var said strings.Builder
		s, err := postgres.Open(t.Context(), mine, postgres.Options{Logger: slog.New(slog.NewTextHandler(&said, nil))})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		return said.String()
	}
	said := open()
	if strings.Contains(said, "no privileges") || strings.Count(said, "As the owner of the schema: GRANT USAGE ON SCHEMA weir TO weir_producer") != 1 {
		t.Errorf("said: %s", said)
	}
	pgtest.Exec(t, address, `DROP SCHEMA weir CASCADE; CREATE SCHEMA weir; GRANT ALL ON SCHEMA weir TO `+roleOf(t, mine)+`;
		GRANT USAGE ON SCHEMA weir TO weir_producer, weir_consumer, weir_reader`)
	if said := open(); said != "" {
		t.Errorf("all is as it should be, and it said: %s", said)
	}
}

func roleOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.User.Username()
}

// released makes the schema as the scripts of a released version did.
func released(t *testing.T, address string, version int) {
	t.Helper()
	file, err := os.Open(fmt.Sprintf("testdata/version%d.sql.gz", version))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	unpacked, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, address, string(script))
}

// What is in a database that a released version made stays there, and all else becomes as in one that is made today.
func TestAnOlderSchemaIsBroughtUpToDate(t *testing.T) {
	today := pgtest.URL(t)
	at(t, today).Close()
	for _, version := range []int{4, 9} {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			address := pgtest.URL(t)
			released(t, address, version)
			pgtest.Exec(t, address, `INSERT INTO weir.state (key, version, put_at, value) VALUES
				('topic/orders', 1, now(), '{"id":"00112233445566778899aabbccddeeff","partitions":[7,9],"config":{"max.message.bytes":"200"}}'),
				('topic', 1, now(), 'no topic'), ('topics/orders', 1, now(), 'nor this')`)
			pgtest.Exec(t, address, `SELECT weir.commit('{7}', '{}', '{1,1}', '{7,7}', '{0,5}', '{1,1}', '{0,0}', '{0,3}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', 'old')`)
			want := []string{"new"}
			publisher := session(t, address)
			if version == 9 { // and nobody has to wait for a transaction that is open meanwhile
				pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'old')`)
				run(t, publisher, `BEGIN; SELECT weir.publish('orders', 'k', 'open'); SELECT * FROM weir.partitions`)
				want = []string{"old", "open", "new"}
			}
			s := at(t, address)
			run(t, publisher, `COMMIT`)
			if got, want := pgtest.Value(t, address, `SELECT string_agg(t::text, ' ') FROM weir.topic AS t`),
				`(orders,00112233-4455-6677-8899-aabbccddeeff,200,"{7,9}","{""max.message.bytes"": ""200""}")`; got != want {
				t.Errorf("topics: %s\nwant %s", got, want)
			}
			publish(t, s, batch(7, 10))
			if got := bounds(t, s, 7); got.First != 0 || got.Next != 6 {
				t.Errorf("5 records and one more make %+v", got)
			}
			pgtest.Exec(t, address, `SELECT weir.publish('orders', 'k', 'new')`)
			openInbox(t, address).expect(want...)
			for _, what := range []string{
				`SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'weir'::regnamespace ORDER BY 1`,
				`SELECT format('%s %s %s', c.relname, c.relkind, c.relpersistence) FROM pg_class c
				 WHERE c.relnamespace = 'weir'::regnamespace AND c.relname <> 'watching' ORDER BY 1`,
				`SELECT format('%s %s %s %s', a.attrelid::regclass, a.attname, a.atttypid::regtype, a.attnotnull) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
				 WHERE c.relnamespace = 'weir'::regnamespace AND c.relname <> 'watching' ORDER BY 1`,
				`SELECT indexdef FROM pg_indexes WHERE schemaname = 'weir' ORDER BY 1`,
				`SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'weir.state'::regclass ORDER BY 1`,
				`SELECT format('%s %s', kind, what) FROM weir.rights ORDER BY 1`,
				`SELECT format('%s %s %s', p.oid::regprocedure, p.proacl::text, p.prosecdef) FROM pg_proc p WHERE p.pronamespace = 'weir'::regnamespace ORDER BY 1`,
			} {
				all := `SELECT string_agg(x::text, E'\n') FROM (` + what + `) AS x`
				if upgraded, made := pgtest.Value(t, address, all), pgtest.Value(t, today, all); upgraded != made {
					t.Errorf("%s\nbrought up to date:\n%s\nmade today:\n%s", what, upgraded, made)
				}
			}
		})
	}
}

func TestANewerSchemaIsRefused(t *testing.T) {
	address := pgtest.URL(t)
	at(t, address).Close()
	pgtest.Exec(t, address, `INSERT INTO weir.migration (number, name) VALUES (999, 'from the future')`)
	_, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err == nil || !strings.Contains(err.Error(), "version 999") || !strings.Contains(err.Error(), "run the newer weir") {
		t.Errorf("a schema from the future: %v", err)
	}
}

// Both look at an empty database, and the newer one is the first to get the lock.
func TestANewerSchemaIsRefusedThoughItCameMeanwhile(t *testing.T) {
	address := pgtest.URL(t)
	newer := connect(t, address)
	begin(t, newer, `BEGIN; SELECT pg_advisory_xact_lock(2003134834, 66)`) // that of migrations
	opened := make(chan error, 1)
	go func() {
		s, err := postgres.Open(t.Context(), address, postgres.Options{})
		if err == nil {
			s.Close()
		}
		opened <- err
	}()
	until(t, address, `SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	begin(t, newer, `
		CREATE SCHEMA weir;
		CREATE TABLE weir.migration (number int, name text, applied_at timestamptz);
		CREATE TABLE weir.segment ();
		INSERT INTO weir.migration VALUES (999, 'from the future');
		COMMIT`)
	if err := <-opened; err == nil || !strings.Contains(err.Error(), "version 999") {
		t.Errorf("a schema from the future, that came while we waited: %v", err)
	}
}

func TestADatabaseOfAnotherEncodingIsRefused(t *testing.T) {
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/") + "_ascii"
	pgtest.Exec(t, u.String(), `CREATE DATABASE `+name+` ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0`)
	defer pgtest.Exec(t, u.String(), `DROP DATABASE `+name)
	other := *u
	other.Path = "/" + name
	if _, err := postgres.Open(t.Context(), other.String(), postgres.Options{}); err == nil || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
		t.Errorf("a database in SQL_ASCII: %v", err)
	}
}

// A plan with a sort, where sorts are made to look dear, is compiled just in time: 80 ms with a partition locked. And a function that
// looks for tables where its caller says can be led astray.
func TestEveryFunctionPinsItsSettings(t *testing.T) {
	address := pgtest.URL(t)
	at(t, address)
	if got := pgtest.Value(t, address, `
		SELECT coalesce(string_agg(p.proname, ' '), 'none')
		FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
		WHERE p.pronamespace = 'weir'::regnamespace AND l.lanname = 'plpgsql'
		  AND NOT coalesce(p.proconfig, '{}') @> ARRAY['jit=off', 'search_path=pg_catalog, pg_temp']`); got != "none" {
		t.Errorf("these do not: %s", got)
	}
}
