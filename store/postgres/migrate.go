package postgres

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weir-log/weir/eventlog"
)

const (
	// serverMin is the oldest PostgreSQL that will do, as server_version_num counts.
	serverMin = 140000

	// What our advisory locks are called; weir.commit uses 0 to 64.
	advisoryClass   = 2003134834 // "weir"
	advisoryMigrate = 66
	advisoryListen  = 67
)

//go:embed migrate/*.sql
var migrations embed.FS

// script brings the schema to a version. A database that has come to that version never runs it again: what functions of an earlier version
// became is in a later script. The definition moves there, so that each is written once; for who has the old one it replaces it.
type script struct {
	version int
	name    string
	sql     string
}

// scripts lists them in order.
func scripts() (list []script) {
	names, err := fs.Glob(migrations, "migrate/*.sql")
	if err != nil {
		panic(err)
	}
	for _, path := range names {
		name := strings.TrimSuffix(strings.TrimPrefix(path, "migrate/"), ".sql")
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			panic(err)
		}
		sql, err := migrations.ReadFile(path)
		if err != nil {
			panic(err)
		}
		list = append(list, script{version, name, string(sql)})
	}
	return list
}

// newest is the version that this binary needs.
func newest() int {
	list := scripts()
	return list[len(list)-1].version
}

// prepare sees that the database will do, and brings the schema to this binary's version.
func prepare(ctx context.Context, config *pgx.ConnConfig, logger *slog.Logger) error {
	config = config.Copy()
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if n.Hint == "" {
			logger.Info(n.Message)
		} else {
			logger.Info(n.Message, "hint", n.Hint)
		}
	}
	if config.RuntimeParams["statement_timeout"] != "" {
		config.RuntimeParams["statement_timeout"] = "0" // a migration takes as long as it takes
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if code(err) == "08P01" && strings.Contains(err.Error(), "startup parameter") {
		return fmt.Errorf("a pooler stands before the server and takes no settings: add weir_pooled=true to the URL, or connect to the server itself: %w", err)
	}
	if err != nil {
		return readFailed(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	found, err := inspect(ctx, conn)
	if err != nil {
		return readFailed(err)
	}
	if err := found.suitable(); err != nil {
		return err
	}
	if found.version == newest() {
		return nil
	}
	if err := migrate(ctx, conn); err != nil {
		return fmt.Errorf("bring schema weir in database %s to version %d: %w", found.database, newest(), writeFailed(err))
	}
	return nil
}

// facts are what decides whether a database can hold the log.
type facts struct {
	server     int
	serverText string
	encoding   string
	standby    bool
	readOnly   bool
	database   string
	role       string
	schema     bool // there is a schema weir
	mayCreate  bool // create it, or create in it
	ours       bool // it is ours
	strangers  int  // tables in it though it is not ours
	version    int
}

func inspect(ctx context.Context, conn *pgx.Conn) (f facts, err error) {
	err = conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
		       pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean,
		       current_database()::text, current_user::text,
		       to_regnamespace('weir') IS NOT NULL,
		       CASE WHEN to_regnamespace('weir') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
		            ELSE has_schema_privilege(to_regnamespace('weir')::oid, 'CREATE') END,
		       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir') AND c.relname = 'migration')
		       AND EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir') AND c.relname = 'segment'),
		       (SELECT count(*) FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir'))`,
	).Scan(&f.server, &f.serverText, &f.encoding, &f.standby, &f.readOnly, &f.database, &f.role, &f.schema, &f.mayCreate, &f.ours, &f.strangers)
	if err != nil || !f.ours || f.server < serverMin {
		return f, err
	}
	f.version, err = version(ctx, conn)
	return f, err
}

func version(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	err = conn.QueryRow(ctx, `SELECT coalesce(max(number), 0) FROM weir.migration`).Scan(&n)
	return n, err
}

// suitable tells why not, and what to do about it.
func (f facts) suitable() error {
	need := newest()
	switch {
	case f.server < serverMin:
		return fmt.Errorf("the server is PostgreSQL %s, and weir needs 14 or later: upgrade the server", f.serverText)
	case f.encoding != "UTF8":
		return fmt.Errorf("database %s has encoding %s, and weir needs UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", f.database, f.encoding)
	case f.schema && !f.ours && f.strangers > 0:
		return fmt.Errorf("schema weir in database %s is not weir's: it has %d tables or indexes, and none of them is weir.migration; "+
			"give weir another database, or rename that schema", f.database, f.strangers)
	case f.version > need:
		return fmt.Errorf("schema weir in database %s is at version %d, and this binary knows versions up to %d: run the newer weir that made it, or a later one",
			f.database, f.version, need)
	case f.standby:
		return fmt.Errorf("%w: the server is a standby, which takes no writes: connect to the primary (target_session_attrs=read-write chooses it among several hosts)",
			eventlog.ErrUnavailable)
	case f.readOnly:
		return fmt.Errorf("default_transaction_read_only is on for role %s in database %s: ALTER ROLE %s SET default_transaction_read_only = off",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	case f.version < need && !f.mayCreate && !f.schema:
		return fmt.Errorf("role %s may not create the schema weir in database %s: as its owner, CREATE SCHEMA weir AUTHORIZATION %s",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	case f.version < need && !f.mayCreate:
		return fmt.Errorf("role %s may not create tables in schema weir of database %s: as its owner, GRANT ALL ON SCHEMA weir TO %s",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	}
	return nil
}

// migrate runs the scripts that are missing, all or none, one process at a time.
func migrate(ctx context.Context, conn *pgx.Conn) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, advisoryClass, advisoryMigrate); err != nil {
		return err
	}
	// Behind the lock: another process may just have done it, and may be a newer one.
	found, err := inspect(ctx, conn)
	if err != nil {
		return err
	}
	if err := found.suitable(); err != nil {
		return err
	}
	if !found.schema {
		if _, err := tx.Exec(ctx, `CREATE SCHEMA weir`); err != nil {
			return err
		}
	}
	for _, s := range scripts() {
		if s.version <= found.version {
			continue
		}
		// The simple protocol takes several statements at once.
		if _, err := conn.PgConn().Exec(ctx, s.sql).ReadAll(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if _, err := tx.Exec(ctx, `INSERT INTO weir.migration (number, name) VALUES ($1, $2)`, s.version, s.name); err != nil {
			return err
		}
	}
	if _, err := tx.Exec(ctx, `SELECT weir.set_rights()`); err != nil {
		return fmt.Errorf("set rights: %w", err)
	}
	return tx.Commit(ctx)
}
