package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/pgtest"
)

// database is a PostgreSQL of the run's own.
type database struct{ server *pgtest.Server }

func launchDatabase(dir string) (*database, error) {
	server, err := pgtest.Launch(dir)
	if err != nil {
		return nil, err
	}
	return &database{server}, nil
}

// crash shuts the database down at once, and starts it again.
func (d *database) crash() error {
	if err := d.server.Crash(); err != nil {
		return err
	}
	return d.server.Recover()
}

// revive starts the database where it gave up, as it does without room for its log, and waits until it takes requests.
func (d *database) revive(ctx context.Context) error {
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

// interrupt cancels the statements, or ends the sessions, of a part of those that are connected.
func (d *database) interrupt(ctx context.Context, random *rand.Rand, terminate bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.server.Admin())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	function := "pg_cancel_backend"
	if terminate {
		function = "pg_terminate_backend"
	}
	_, err = conn.Exec(ctx, `SELECT `+function+`(pid) FROM pg_stat_activity
		WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND hashint8(pid + $1) % 3 <> 0`, random.IntN(1000))
	return err
}
