package sqlfn

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/use/group"
)

// Verify checks the positions that weir.commit_offset committed. It needs no Attach.
func Verify() verify.Check { return group.VerifyPositions("weir.consumed", readPositions) }

// readPositions reads the positions of all consumers, positionsOnce with a statement.
func readPositions(ctx context.Context, store eventlog.Store, visit func([]group.SQLPosition) error) error {
	sessions, is := eventlog.As[*postgres.Store](store)
	if !is {
		return nil
	}
	for last, more := int64(0), true; more; {
		var page []group.SQLPosition
		err := sessions.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
			var exists bool
			if err := conn.QueryRow(ctx, `SELECT to_regclass('weir.consumed') IS NOT NULL`).Scan(&exists); err != nil || !exists {
				more = false
				return err
			}
			rows, err := conn.Query(ctx, `
				SELECT c.id, c.grp, c.topic::text, c.partition, d.next_offset
				FROM weir.consumer AS c
				CROSS JOIN LATERAL (SELECT next_offset FROM weir.consumed WHERE consumer = c.id ORDER BY turn DESC LIMIT 1) AS d
				WHERE c.id > $1 ORDER BY c.id LIMIT $2`, last, positionsOnce)
			if err != nil {
				return err
			}
			page = nil
			var topic string
			var at group.SQLPosition
			tag, err := pgx.ForEachRow(rows, []any{&last, &at.Group, &topic, &at.Partition, &at.Offset}, func() (err error) {
				at.Topic, err = eventlog.ParseTopicID(strings.ReplaceAll(topic, "-", ""))
				page = append(page, at)
				return err
			})
			more = tag.RowsAffected() == positionsOnce
			return err
		})
		if err != nil {
			return fmt.Errorf("read weir.consumed: %w", err)
		}
		if err := visit(page); err != nil {
			return err
		}
	}
	return nil
}
