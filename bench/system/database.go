package system

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// databaseFaults are what can be done to a database: to PostgreSQL, and to no other.
func databaseFaults(db database) Faults {
	pg, is := db.(*postgres)
	if !is {
		return Faults{}
	}
	faults := Faults{
		Hold: func(ctx context.Context) (func(), error) {
			conn, err := pgx.Connect(ctx, pg.url)
			if err != nil {
				return nil, err
			}
			_, err = conn.Exec(ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class`)
			return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, err
		},
	}
	if pg.server != nil {
		faults.Kill = func() (func() error, error) { return pg.server.Recover, pg.server.Crash() } // immediate: nothing is flushed
		faults.Pause = pg.server.Suspend
	}
	return faults
}

// databaseSize is what a database takes on disk, without its write-ahead log; without a database,
// what a directory takes.
func databaseSize(ctx context.Context, db database, dir string) (size int64, err error) {
	if b, is := db.(*bucket); is {
		return dirSize(b.server.Directory(b.url))
	}
	pg, is := db.(*postgres)
	if !is {
		return dirSize(dir)
	}
	conn, err := pgx.Connect(ctx, pg.url)
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	return size, conn.QueryRow(ctx, `SELECT pg_database_size(current_database())`).Scan(&size)
}

func dirSize(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return ignoreGone(err)
		}
		info, err := entry.Info()
		if err != nil {
			return ignoreGone(err)
		}
		size += info.Size()
		return nil
	})
	return size, err
}

// ignoreGone forgives a file that is not there anymore: the server deletes some meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// committed runs a transaction. What fails before its commit has certainly done nothing; a commit
// that fails may have, whatever the driver says of whether it was sent.
func committed(ctx context.Context, pool *pgxpool.Pool, do func(pgx.Tx) error) error {
	done := false
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		err := do(tx)
		done = err == nil
		return err
	})
	if err != nil && done {
		return errors.Join(ErrUnsure, err)
	}
	return err
}

// outcome tells what an error of PostgreSQL says about the statement: refused, never sent, or
// unknown, which is when the session ended before the answer.
func outcome(err error) error {
	var refused *pgconn.PgError
	switch {
	case err == nil, pgconn.SafeToRetry(err):
		return err
	case errors.As(err, &refused) && refused.Code[:2] != "57" && refused.Code[:2] != "08": // operator intervention, connection
		return err
	}
	return errors.Join(ErrUnsure, err)
}
