package system

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
)

func (s *weirServer) ReadTagged(ctx context.Context, tags []string) (values [][]byte, boundary any, err error) {
	events, b, err := s.category.Tagged(ctx, tags...)
	for _, e := range events {
		values = append(values, e.Data)
	}
	return values, b, err
}

func (s *weirServer) AppendWithin(ctx context.Context, tags []string, boundary any, stream string, value []byte) error {
	_, err := s.category.AppendWithin(ctx, boundary.(weir.TagBoundary), stream, weir.AnyVersion, weir.NewStreamEvent{Type: "measured", Data: value, Tags: tags})
	if errors.Is(err, weir.ErrBoundary) {
		return ErrBoundary
	}
	return unsure(err)
}

// Tags on plain PostgreSQL: an array with an index. Who appends locks the tags, in order, so that
// nobody else appends between the check and the commit.

func (p *plain) ReadTagged(ctx context.Context, tags []string) (values [][]byte, boundary any, err error) {
	rows, err := p.pool.Query(ctx, `SELECT id, data FROM tagged WHERE tags && $1 ORDER BY id`, tags)
	if err != nil {
		return nil, nil, err
	}
	newest, data := int64(0), []byte(nil)
	_, err = pgx.ForEachRow(rows, []any{&newest, &data}, func() error {
		values = append(values, append([]byte(nil), data...))
		return nil
	})
	return values, newest, err
}

func (p *plain) AppendWithin(ctx context.Context, tags []string, boundary any, _ string, value []byte) error {
	return committed(ctx, p.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(t, 0) AS h FROM unnest($1::text[]) AS t ORDER BY h) AS locks`, tags); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO tagged (tags, data) SELECT $1, $2 WHERE NOT EXISTS (SELECT 1 FROM tagged WHERE tags && $1 AND id > $3)`, tags, value, boundary)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrBoundary
		}
		return err
	})
}
