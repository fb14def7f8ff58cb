package inbox

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
)

// postgresTables are the tables of a shard, in the schema weir.
type postgresTables struct{ store *postgres.Store }

func (p postgresTables) table(name string) string { return "weir." + name }

func (p postgresTables) exists(name string) string {
	return "SELECT count(*) FROM pg_tables WHERE schemaname = 'weir' AND tablename = '" + name + "'"
}

func (p postgresTables) query(ctx context.Context, each func([]any) error, statement string) error {
	return p.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) (failed, err error) {
		return eachRow(ctx, conn, each, statement)
	})
}

func (p postgresTables) queryIn(ctx context.Context, each func([]any) error, statement string) (in string, err error) {
	err = p.read(ctx, func(ctx context.Context, conn *pgxpool.Conn) (failed, err error) {
		if in, err = incarnationOf(ctx, conn); err != nil {
			return nil, err
		}
		return eachRow(ctx, conn, each, statement)
	})
	return in, err
}

// read calls do with a connection, again if the connection broke. failed is an error after which do
// is not called again.
func (p postgresTables) read(ctx context.Context, do func(context.Context, *pgxpool.Conn) (failed, err error)) error {
	var failed error
	err := p.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) (err error) {
		failed, err = do(ctx, conn)
		return err
	})
	if failed != nil {
		return failed
	}
	return err
}

// eachRow calls each with each row of a statement. failed is an error after which the statement
// must not be repeated: one that the function each returned, or any after each was called, because
// each must not get the same rows again.
func eachRow(ctx context.Context, conn *pgxpool.Conn, each func([]any) error, statement string) (failed, err error) {
	rows, err := conn.Query(ctx, statement)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	called := false
	for rows.Next() {
		row, err := rows.Values()
		if err != nil {
			return err, nil
		}
		for i, v := range row {
			if n, is := v.(int32); is {
				row[i] = int64(n)
			}
		}
		called = true
		if err := each(row); err != nil {
			return err, nil
		}
	}
	if err := rows.Err(); err != nil && called {
		return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err), nil
	}
	return nil, rows.Err()
}

// incarnationOf returns the incarnation of a connection's database.
func incarnationOf(ctx context.Context, conn interface {
	QueryRow(ctx context.Context, statement string, args ...any) pgx.Row
}) (in string, err error) {
	var life postgres.Incarnation
	err = conn.QueryRow(ctx, "SELECT coalesce(l.server, 0), l.tables FROM weir.life() AS l").Scan(&life.Server, &life.Tables)
	return life.InMark().Store, err
}

// exec runs statements in one transaction that is durable at its end, whatever the server's
// settings.
func (p postgresTables) exec(ctx context.Context, statement string, args ...any) error {
	return p.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, statement, args...)
		return err
	})
}

// execIn is exec, if the database is in the incarnation that queryIn returned.
func (p postgresTables) execIn(ctx context.Context, in, statement string, args ...any) error {
	return p.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		is, err := incarnationOf(ctx, tx)
		if err == nil {
			err = eventlog.StillIn(in, is)
		}
		if err == nil {
			_, err = tx.Exec(ctx, statement, args...)
		}
		return err
	})
}

func (p postgresTables) change(ctx context.Context, do func(context.Context, pgx.Tx) error) error {
	return p.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after Commit
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return err
		}
		if err := do(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

func (p postgresTables) aim(ctx context.Context, in string, targets []target) error {
	var ids, partitions []int64
	var topics []string
	var numbers []int32
	for _, t := range targets {
		ids, topics, numbers, partitions = append(ids, t.id), append(topics, t.topic.String()), append(numbers, t.number), append(partitions, int64(t.partition))
	}
	return p.execIn(ctx, in, `WITH barrier AS (UPDATE weir.weir_inbox_barrier SET n = n + 1)
		INSERT INTO weir.weir_inbox_target SELECT t.* FROM unnest($1::bigint[], $2::text[], $3::int[], $4::bigint[]) AS t (id)
		WHERE EXISTS (SELECT FROM weir.weir_inbox i WHERE i.id = t.id) ON CONFLICT DO NOTHING`, ids, topics, numbers, partitions)
}

func (p postgresTables) removeTargets(ctx context.Context) error {
	return p.exec(ctx, "DELETE FROM weir.weir_inbox_target WHERE id NOT IN (SELECT id FROM weir.weir_inbox)")
}

func (p postgresTables) remove(ctx context.Context, in string, ids, times []int64) error {
	return p.execIn(ctx, in, `WITH targets AS (DELETE FROM weir.weir_inbox_target WHERE id = ANY($1))
		DELETE FROM weir.weir_inbox WHERE id = ANY($1) AND ($2::bigint[] IS NULL OR published_at = ANY($2))`, ids, times)
}

func (p postgresTables) refuse(ctx context.Context, in string, id int64, reason string) error {
	return p.execIn(ctx, in, "WITH i AS (DELETE FROM weir.weir_inbox WHERE id = $1 RETURNING "+columns+") INSERT INTO weir.weir_inbox_refused SELECT "+refusedColumns("weir.")+", $2::text FROM i", id, reason)
}

func (p postgresTables) install(ctx context.Context, name string, _ *slog.Logger) error {
	files, err := fs.Sub(sqlFiles, "sql/postgres")
	if err != nil {
		return fmt.Errorf("read the door's SQL: %w", err)
	}
	if err := p.store.Install(ctx, postgres.Part{Name: "inbox", Files: files, Public: []string{"publish", "publish_all", "tombstone"}}); err != nil {
		return err
	}
	if err := p.exec(ctx, "SELECT weir.set_inbox_rights()"); err != nil { // a role may have been created since
		return err
	}
	return p.exec(ctx, "INSERT INTO weir.weir_inbox_identity VALUES (1, $1) ON CONFLICT DO NOTHING", name)
}
