package inbox

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/store/postgres"
)

// postgresTables are the tables of a shard, in the schema weir.
type postgresTables struct{ store *postgres.Store }

func (p postgresTables) table(name string) string { return "weir." + name }

func (p postgresTables) exists(name string) string {
	return "SELECT count(*) FROM pg_tables WHERE schemaname = 'weir' AND tablename = '" + name + "'"
}

func (p postgresTables) query(ctx context.Context, each func([]any) error, statement string) error {
	var failed error // of each: the connection is fine
	err := p.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, statement)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			row, err := rows.Values()
			if err != nil {
				return err
			}
			for i, v := range row {
				if n, is := v.(int32); is {
					row[i] = int64(n)
				}
			}
			if failed = each(row); failed != nil {
				return nil
			}
		}
		return rows.Err()
	})
	if failed != nil {
		return failed
	}
	return err
}

// exec runs statements in one transaction that is durable at its end, whatever the server's
// settings.
func (p postgresTables) exec(ctx context.Context, statement string, args ...any) error {
	return p.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // no effect after Commit
		if _, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, statement, args...); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

func (p postgresTables) aim(ctx context.Context, targets []target) error {
	var ids, partitions []int64
	var topics []string
	var numbers []int32
	for _, t := range targets {
		ids, topics, numbers, partitions = append(ids, t.id), append(topics, t.topic.String()), append(numbers, t.number), append(partitions, int64(t.partition))
	}
	return p.exec(ctx, `WITH barrier AS (UPDATE weir.weir_inbox_barrier SET n = n + 1)
		INSERT INTO weir.weir_inbox_target SELECT t.* FROM unnest($1::bigint[], $2::text[], $3::int[], $4::bigint[]) AS t (id)
		WHERE EXISTS (SELECT FROM weir.weir_inbox i WHERE i.id = t.id) ON CONFLICT DO NOTHING`, ids, topics, numbers, partitions)
}

func (p postgresTables) removeTargets(ctx context.Context) error {
	return p.exec(ctx, "DELETE FROM weir.weir_inbox_target WHERE id NOT IN (SELECT id FROM weir.weir_inbox)")
}

func (p postgresTables) remove(ctx context.Context, ids, times []int64) error {
	return p.exec(ctx, `WITH targets AS (DELETE FROM weir.weir_inbox_target WHERE id = ANY($1))
		DELETE FROM weir.weir_inbox WHERE id = ANY($1) AND ($2::bigint[] IS NULL OR published_at = ANY($2))`, ids, times)
}

func (p postgresTables) refuse(ctx context.Context, id int64, reason string) error {
	return p.exec(ctx, "WITH i AS (DELETE FROM weir.weir_inbox WHERE id = $1 RETURNING "+columns+") INSERT INTO weir.weir_inbox_refused SELECT "+refusedColumns("weir.")+", $2::text FROM i", id, reason)
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
