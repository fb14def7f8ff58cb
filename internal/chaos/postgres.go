package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // as any program connects

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// postgres is a PostgreSQL of the run's own.
type postgres struct{ server *pgtest.Server }

func launchPostgres(dir string) (*postgres, error) {
	server, err := pgtest.Launch(dir)
	if err != nil {
		return nil, err
	}
	return &postgres{server}, nil
}

func (d *postgres) address() string { return d.server.Admin() }
func (d *postgres) close() error    { return d.server.Close() }

func (d *postgres) settings() map[string]string {
	return map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
}

func (d *postgres) crash() error                  { return d.server.Crash() }
func (d *postgres) recover(context.Context) error { return d.server.Recover() }

// revive starts the database where it gave up, as it does without room for its log, and waits until
// it takes requests.
func (d *postgres) revive(ctx context.Context) error {
	for late := time.Now().Add(startMax); ; pause(ctx, 50*time.Millisecond) {
		var failed error
		if !d.server.Running() {
			failed = d.server.Recover()
		}
		conn, err := pgx.Connect(ctx, d.server.Admin())
		if err == nil {
			return conn.Close(ctx)
		}
		if time.Now().After(late) || ctx.Err() != nil {
			return errors.Join(failed, err)
		}
	}
}

// do connects, as any program could.
func (d *postgres) do(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, d.server.Admin())
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}

func (d *postgres) exec(ctx context.Context, statement string, args ...any) error {
	return d.do(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement, args...)
		return err
	})
}

func (d *postgres) interrupt(ctx context.Context, random *rand.Rand, terminate bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	function := "pg_cancel_backend"
	if terminate {
		function = "pg_terminate_backend"
	}
	return d.exec(ctx, `SELECT `+function+`(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND hashint8(pid + $1) % 3 <> 0`, random.IntN(1000))
}

func (d *postgres) suspend() (resume func(), err error) { return d.server.Suspend() }

// inbox is that of a shard: a PostgreSQL that is the whole store has another one.
func (d *postgres) inbox() (inbox, error) {
	db, err := sql.Open("pgx", d.server.Admin())
	return inbox{db: db, table: "weir.weir_inbox", publish: "SELECT weir.publish($1::text, NULL::text, convert_from($2::bytea, 'UTF8'))", mark: "INSERT INTO markers VALUES ($1)"}, err
}

func (d *postgres) makeNewer(ctx context.Context) (known, newer string, back func() error, err error) {
	err = d.do(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT max(number)::text FROM weir.migration WHERE part = 'log'`).Scan(&known)
	})
	if err != nil {
		return "", "", nil, err
	}
	set := func(from, to string) error {
		return d.exec(ctx, fmt.Sprintf(`UPDATE weir.migration SET number = %s WHERE part = 'log' AND number = %s`, to, from))
	}
	return known, newerTables, func() error { return set(newerTables, known) }, set(known, newerTables)
}

func (d *postgres) changeByte(ctx context.Context, p eventlog.Partition, base int64, _ string) error {
	return d.exec(ctx, fmt.Sprintf(`UPDATE weir.batch SET bytes = set_byte(bytes, length(bytes) - 2, get_byte(bytes, length(bytes) - 2) # 64)
		WHERE partition_id = %d AND base_offset = %d`, p, base))
}

func (d *postgres) backup(context.Context) (restore func() error, err error) {
	return d.server.Backup()
}
