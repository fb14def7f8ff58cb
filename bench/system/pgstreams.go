package system

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// category begins the name of every stream; a dash follows.
const category = "currency"

// Streams on plain PostgreSQL, as a team writes them: one table, whose primary key is a stream and
// a version.

func (p *plain) CreateStreams(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, `CREATE TABLE events (stream text, version bigint, data bytea NOT NULL, tx xid8 NOT NULL DEFAULT pg_current_xact_id(), id bigserial, PRIMARY KEY (stream, version));
		CREATE UNIQUE INDEX ON events (tx, id);
		CREATE TABLE tagged (id bigserial PRIMARY KEY, tags text[] NOT NULL, data bytea NOT NULL);
		CREATE INDEX ON tagged USING gin (tags) WITH (fastupdate = off)`)
	return err
}

// Append inserts if the stream is at the version. Of two that see the same version one waits for
// the other by the primary key, and is refused.
func (p *plain) Append(ctx context.Context, stream string, expected int64, values [][]byte) (int64, error) {
	for {
		at := expected
		if expected == AnyVersion {
			var err error
			if at, err = p.version(ctx, stream); err != nil {
				return 0, err
			}
		}
		tag, err := p.pool.Exec(ctx, `INSERT INTO events (stream, version, data) SELECT $1, $2 + v.n - 1, v.data FROM unnest($3::bytea[]) WITH ORDINALITY AS v (data, n)
			WHERE $2 = (SELECT coalesce(max(version) + 1, 0) FROM events WHERE stream = $1) ON CONFLICT DO NOTHING`, stream, at, values)
		switch {
		case err != nil:
			return 0, outcome(err)
		case tag.RowsAffected() > 0:
			return at + int64(len(values)), nil
		case expected == AnyVersion:
			continue
		}
		actual, err := p.version(ctx, stream)
		if err != nil {
			return 0, err
		}
		return 0, &Conflict{Actual: actual}
	}
}

func (p *plain) version(ctx context.Context, stream string) (at int64, err error) {
	return at, p.pool.QueryRow(ctx, `SELECT coalesce(max(version) + 1, 0) FROM events WHERE stream = $1`, stream).Scan(&at)
}

func (p *plain) ReadStream(ctx context.Context, stream string, from int64, most int) (versions []int64, values [][]byte, err error) {
	rows, err := p.pool.Query(ctx, `SELECT version, data FROM events WHERE stream = $1 AND version >= $2 ORDER BY version LIMIT nullif($3, 0)`, stream, from, most)
	if err != nil {
		return nil, nil, err
	}
	var at int64
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&at, &data}, func() error {
		versions, values = append(versions, at), append(values, data)
		data = nil
		return nil
	})
	return versions, values, err
}

// Follow reads in the order of transactions, and only what no running transaction can come before:
// an id alone would skip what is committed late.
func (p *plain) Follow(ctx context.Context, deliver func(Followed)) error {
	tx, id := "0", int64(0)
	for ctx.Err() == nil {
		rows, err := p.pool.Query(ctx, `SELECT stream, version, data, tx::text, id FROM events
			WHERE (tx, id) > ($1::text::xid8, $2) AND tx < pg_snapshot_xmin(pg_current_snapshot()) ORDER BY events.tx, events.id LIMIT $3`, tx, id, followMost)
		if err != nil {
			return errUnless(ctx, err)
		}
		var e Followed
		tag, err := pgx.ForEachRow(rows, []any{&e.Stream, &e.Version, &e.Value, &tx, &id}, func() error {
			e.Saved = time.Now()
			deliver(e)
			e.Value = nil
			return nil
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
