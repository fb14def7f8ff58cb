package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/bench/fetch"
)

// messageDB is message-db as it comes: its own tables and functions, called as its clients do.
func messageDB() System {
	settings := Settings{"fsync": "on", "synchronous_commit": "on", "settings": "PostgreSQL's defaults", "client": "pgx, write_message; a value that is no JSON is base64 in a JSON object; a category is read by polls each ms"}
	return System{
		Name: "message-db", About: "message-db " + mustPeer("message-db").Version + " on PostgreSQL", Needs: "PostgreSQL", Fetch: "message-db", Ordered: true,
		Modes: map[Mode]Settings{Durable: settings, Shipped: settings},
		Start: func(ctx context.Context, place Place, _ Mode) (Server, error) {
			dir, err := fetch.Dir("message-db")
			if err != nil {
				return nil, err
			}
			return startOnPostgres(ctx, place, "SET search_path = message_store, public", func(ctx context.Context, conn *pgxpool.Pool) (any, error) {
				return &messages{conn}, installMessageDB(ctx, conn, filepath.Join(dir, "package", "database"))
			})
		},
	}
}

// installMessageDB runs the files of the package in the order of its install.sh; the roles, rights
// and views that it has beside them are not used.
func installMessageDB(ctx context.Context, pool *pgxpool.Pool, dir string) error {
	files := []string{"schema/message-store.sql", "extensions/pgcrypto.sql", "tables/messages.sql", "types/message.sql"}
	for _, kind := range []string{"functions", "indexes"} {
		found, err := filepath.Glob(filepath.Join(dir, kind, "*.sql"))
		if err != nil {
			return err
		}
		slices.Sort(found)
		for _, f := range found {
			files = append(files, kind+"/"+filepath.Base(f))
		}
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(f)))
		if err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, string(text)); err != nil {
			return fmt.Errorf("message-db's %s: %w", f, err)
		}
	}
	return nil
}

type messages struct{ pool *pgxpool.Pool }

func (*messages) CreateStreams(context.Context) error { return nil }

// wrong is how write_message tells a conflict.
var wrong = regexp.MustCompile(`Wrong expected version: .*Stream Version: (-?\d+)`)

func (m *messages) Append(ctx context.Context, stream string, expected int64, values [][]byte) (after int64, err error) {
	write := func(tx interface {
		QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	}) error {
		for i, v := range values {
			data, err := asJSON(v)
			if err != nil {
				return err
			}
			var at *int64 // any
			if expected != AnyVersion {
				version := expected + int64(i) - 1
				at = &version
			}
			if err := tx.QueryRow(ctx, `SELECT message_store.write_message(gen_random_uuid()::varchar, $1, 'measured', $2, NULL, $3)`,
				stream, data, at).Scan(&after); err != nil {
				return err
			}
		}
		return nil
	}
	if len(values) == 1 {
		err = write(m.pool)
	} else {
		err = pgx.BeginFunc(ctx, m.pool, func(tx pgx.Tx) error { return write(tx) })
	}
	var refused *pgconn.PgError
	if err == nil {
		return after + 1, nil
	}
	if !errors.As(err, &refused) {
		return 0, outcome(err)
	}
	if said := wrong.FindStringSubmatch(refused.Message); said != nil {
		at, err := strconv.ParseInt(said[1], 10, 64)
		return 0, errors.Join(err, &Conflict{Actual: at + 1})
	}
	return 0, outcome(err)
}

func (m *messages) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	if most == 0 {
		most = -1
	}
	rows, err := m.pool.Query(ctx, `SELECT position, data FROM message_store.get_stream_messages($1, $2, $3)`, stream, from, most)
	if err != nil {
		return nil, nil, err
	}
	var at int64
	var data string
	_, err = pgx.ForEachRow(rows, []any{&at, &data}, func() error {
		value, err := fromJSON([]byte(data))
		versions, values = append(versions, at), append(values, value)
		return err
	})
	return versions, values, err
}

// followMost is how many messages a projection asks for at once.
const followMost = 1000

// Follow reads the category, as message-db's consumers do. Its writers hold a lock of the category,
// so that positions become visible in order.
func (m *messages) Follow(ctx context.Context, deliver func(Followed)) error {
	for next := int64(1); ctx.Err() == nil; {
		rows, err := m.pool.Query(ctx, `SELECT stream_name, position, global_position, data FROM message_store.get_category_messages($1, $2, $3)`, category, next, followMost)
		if err != nil {
			return errUnless(ctx, err)
		}
		var e Followed
		var at int64
		var data string
		tag, err := pgx.ForEachRow(rows, []any{&e.Stream, &e.Version, &at, &data}, func() (err error) {
			e.Value, err = fromJSON([]byte(data))
			e.Saved, next = time.Now(), at+1
			deliver(e)
			return err
		})
		if err != nil {
			return errUnless(ctx, err)
		}
		if tag.RowsAffected() == 0 {
			pause(ctx, pollEvery)
		}
	}
	return nil
}
