package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storerow"
)

const (
	// serverMin is the oldest supported PostgreSQL, as server_version_num counts.
	serverMin = 140000
	// installsMax bounds how often an installation is repeated because another process created the
	// schema meanwhile.
	installsMax = 3
)

// Install installs this binary's version of a part of the schema.
func (s *Store) Install(ctx context.Context, p Part) error {
	opts := s.opts
	opts.Existing = false // a part may be new in a database that has others
	if err := prepare(ctx, s.config, opts, p); err != nil {
		return fmt.Errorf("install %s in the PostgreSQL store at %s: %w", p.Name, serverName(s.config.ConnConfig), err)
	}
	s.used(p)
	return nil
}

// prepare checks that the database is suitable, and installs this binary's version of a part of the
// schema.
func prepare(ctx context.Context, config *pgxpool.Config, opts Options, p Part) error {
	config = config.Copy()
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		level, about := slog.LevelInfo, []any(nil)
		if n.SeverityUnlocalized == "WARNING" {
			level = slog.LevelWarn
		}
		if n.Hint != "" {
			about = []any{"hint", n.Hint}
		}
		opts.Logger.Log(ctx, level, n.Message, about...)
	}
	if config.ConnConfig.RuntimeParams["statement_timeout"] != "" {
		config.ConnConfig.RuntimeParams["statement_timeout"] = "0" // a migration takes as long as it takes
	}
	conn, err := connect(ctx, config)
	if code(err) == "08P01" && strings.Contains(err.Error(), "startup parameter") {
		return fmt.Errorf("a pooler in front of the server refuses settings: add weir_pooled=true to the URL, or connect to the server directly: %w", err)
	}
	if err != nil {
		return readFailed(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	found, err := inspect(ctx, conn, p)
	if err != nil {
		return readFailed(err)
	}
	if err := found.suitable(p); err != nil {
		return err
	}
	if found.current(p) {
		return readFailed(p.start(ctx, conn))
	}
	if opts.Existing && !found.ours {
		return fmt.Errorf("database %s has no tables of weir, and must have them: correct the URL, or restore a backup", found.database)
	}
	if err := migrate(ctx, conn, p, opts); errors.Is(err, eventlog.ErrUpgradeDue) {
		return fmt.Errorf("database %s: %w", found.database, err)
	} else if err != nil {
		return fmt.Errorf("upgrade %s in schema weir of database %s to version %d: %w", p.Name, found.database, p.newest(), writeFailed(err))
	}
	return nil
}

// facts decide whether a database can hold the log.
type facts struct {
	server     int
	serverText string
	encoding   string
	standby    bool
	readOnly   bool
	noTriggers bool // ordinary triggers do not run
	database   string
	role       string
	schema     bool   // there is a schema weir
	mayCreate  bool   // the role may create the schema, or tables in it
	ours       bool   // the schema is weir's
	strangers  int    // how many tables and indexes the schema has
	version    int    // the version of the part that is installed
	functions  string // the hash of the installed functions and views
}

func inspect(ctx context.Context, conn *pgx.Conn, p Part) (f facts, err error) {
	err = conn.QueryRow(ctx, `
		SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
		       pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean,
		       current_setting('session_replication_role') = 'replica',
		       current_database()::text, current_user::text,
		       to_regnamespace('weir') IS NOT NULL,
		       CASE WHEN to_regnamespace('weir') IS NULL THEN has_database_privilege(current_database(), 'CREATE')
		            ELSE has_schema_privilege(to_regnamespace('weir')::oid, 'CREATE') END,
		       EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir') AND c.relname = 'migration')
		       AND EXISTS (SELECT FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir') AND c.relname = 'segment'),
		       (SELECT count(*) FROM pg_class c WHERE c.relnamespace = to_regnamespace('weir'))`,
	).Scan(&f.server, &f.serverText, &f.encoding, &f.standby, &f.readOnly, &f.noTriggers, &f.database, &f.role, &f.schema, &f.mayCreate, &f.ours, &f.strangers)
	if err != nil || !f.ours || f.server < serverMin {
		return f, err
	}
	// Before version 15 of the part log, all rows were of that part, and the table had fewer
	// columns.
	err = conn.QueryRow(ctx, `
		SELECT coalesce(max(m.number), 0), coalesce((array_agg(m.functions ORDER BY m.number DESC))[1], '')
		FROM (SELECT number, coalesce(to_jsonb(x) ->> 'part', 'log') AS part, to_jsonb(x) ->> 'functions' AS functions FROM weir.migration x) AS m
		WHERE m.part = $1`, p.Name).Scan(&f.version, &f.functions)
	return f, err
}

// current reports whether nothing needs to be installed.
func (f facts) current(p Part) bool { return f.version == p.newest() && f.functions == p.hash() }

// suitable returns why the database cannot be used, and what to do about it.
func (f facts) suitable(p Part) error {
	need := p.newest()
	switch {
	case f.server < serverMin:
		return fmt.Errorf("the server is PostgreSQL %s, and weir needs 14 or later: upgrade the server", f.serverText)
	case f.encoding != "UTF8":
		return fmt.Errorf("database %s has encoding %s, and weir needs UTF8: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0", f.database, f.encoding)
	case f.schema && !f.ours && f.strangers > 0:
		return fmt.Errorf("schema weir in database %s does not belong to weir: it has %d tables or indexes, but no table weir.migration; "+
			"use another database for weir, or rename that schema", f.database, f.strangers)
	case f.version > need:
		return fmt.Errorf("schema weir in database %s: %w", f.database, storerow.Newer(p.Name, f.version, need))
	case f.standby:
		return fmt.Errorf("%w: the server is a standby, which accepts no writes: connect to the primary (with several hosts in the URL, target_session_attrs=read-write finds it)",
			eventlog.ErrUnavailable)
	case f.readOnly:
		return fmt.Errorf("default_transaction_read_only is on for role %s in database %s: turn it off with ALTER ROLE %s SET default_transaction_read_only = off",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	case f.noTriggers:
		return fmt.Errorf("session_replication_role is replica for role %s in database %s, so that triggers do not run, and SQL sessions would find no topics: "+
			"ALTER ROLE %s SET session_replication_role = origin", f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	case !f.current(p) && !f.mayCreate && !f.schema:
		return fmt.Errorf("role %s may not create the schema weir in database %s: as the owner of the database, run CREATE SCHEMA weir AUTHORIZATION %s",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	case !f.current(p) && !f.mayCreate:
		return fmt.Errorf("role %s may not create tables in schema weir of database %s: as the owner of the schema, run GRANT ALL ON SCHEMA weir TO %s",
			f.role, f.database, pgx.Identifier{f.role}.Sanitize())
	}
	return nil
}

// migrate installs a part, all of it or nothing, one process at a time. If two processes
// create the schema or its first table, the second waits for the first to commit, gets an error,
// and starts over.
func migrate(ctx context.Context, conn *pgx.Conn, p Part, opts Options) error {
	for attempt := 1; ; attempt++ {
		err := migrateOnce(ctx, conn, p, opts)
		switch code(err) {
		case "42P06", "42P07", "23505": // the schema, the table or the catalog's row exists: another process has created it since we looked
			if attempt < installsMax {
				continue
			}
		}
		return err
	}
}

func migrateOnce(ctx context.Context, conn *pgx.Conn, p Part, opts Options) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	for _, s := range settings { // through a pooler the session does not have them
		if _, err := tx.Exec(ctx, `SELECT set_config($1, $2, true)`, s[0], s[1]); err != nil {
			return err
		}
	}
	found, err := inspect(ctx, conn, p)
	if err != nil {
		return err
	}
	switch {
	case !found.schema:
		_, err = tx.Exec(ctx, `CREATE SCHEMA weir`)
	case found.ours: // a lock that only roles with rights to write the table can take
		_, err = tx.Exec(ctx, `LOCK TABLE weir.migration IN SHARE ROW EXCLUSIVE MODE`)
	}
	if err != nil {
		return err
	}
	// After locking, look again: another process may just have installed the part, perhaps a newer
	// version.
	if found.schema {
		if found, err = inspect(ctx, conn, p); err != nil {
			return err
		}
	}
	if err := found.suitable(p); err != nil {
		return err
	}
	if found.current(p) {
		return nil
	}
	return storerow.Upgrade(opts.Logger, !opts.NoUpgrade, "tables and functions, part "+p.Name, found.version, p.newest(), func() error {
		if err := p.install(ctx, conn, found.version); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}
