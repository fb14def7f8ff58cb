package postgres_test

import (
	"fmt"
	"net/url"
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
			`CREATE SCHEMA weir; CREATE TABLE weir.river (height int)`, `GRANT ALL ON SCHEMA weir TO {role}`, "use another database for weir"},
		"schema without a grant": {`CREATE SCHEMA weir`, `SELECT`, "GRANT ALL ON SCHEMA weir TO"},
		"read only":              {"", `ALTER ROLE {role} SET default_transaction_read_only = on; GRANT CREATE ON DATABASE {database} TO {role}`, "default_transaction_read_only = off"},
		"without triggers":       {"", `ALTER ROLE {role} SET session_replication_role = replica; GRANT CREATE ON DATABASE {database} TO {role}`, "session_replication_role = origin"},
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

func TestANewerSchemaIsRefused(t *testing.T) {
	address := pgtest.URL(t)
	at(t, address).Close()
	pgtest.Exec(t, address, `INSERT INTO weir.migration (part, number, name) VALUES ('log', 999, 'from the future')`)
	_, err := postgres.Open(t.Context(), address, postgres.Options{})
	if err == nil || !strings.Contains(err.Error(), "version 999") || !strings.Contains(err.Error(), "run the newer weir") {
		t.Errorf("a schema from the future: %v", err)
	}
}

// Both look at a database that is empty, or has the schema and nothing in it, and the newer one is
// the first.
func TestANewerSchemaIsRefusedThoughItCameMeanwhile(t *testing.T) {
	for name, before := range map[string]string{"empty": `SELECT`, "with the schema": `CREATE SCHEMA weir`} {
		t.Run(name, func(t *testing.T) {
			address := pgtest.URL(t)
			pgtest.Exec(t, address, before)
			newer := connect(t, address)
			begin(t, newer, `BEGIN; CREATE SCHEMA IF NOT EXISTS weir; CREATE TABLE weir.migration (number int, name text, applied_at timestamptz)`)
			opened := make(chan error, 1)
			go func() {
				s, err := postgres.Open(t.Context(), address, postgres.Options{})
				if err == nil {
					s.Close()
				}
				opened <- err
			}()
			until(t, address, `SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`)
			begin(t, newer, `
				CREATE TABLE weir.segment ();
				INSERT INTO weir.migration VALUES (999, 'from the future');
				COMMIT`)
			if err := <-opened; err == nil || !strings.Contains(err.Error(), "version 999") {
				t.Errorf("a schema from the future, that came while we waited: %v", err)
			}
		})
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

// A plan with a sort, where sorts are made to look dear, is compiled just in time: 80 ms with a
// partition locked. And a function that looks for tables where its caller says can be led astray.
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
