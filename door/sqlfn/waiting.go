package sqlfn

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/postgres"
)

// Waiting counts the rows of a store's inbox that are not moved into its log; 0 if the store has no
// SQL sessions. It needs no Attach.
func Waiting(ctx context.Context, store eventlog.Store) (rows int64, err error) {
	sessions, is := eventlog.As[*postgres.Store](store)
	if !is {
		return 0, nil
	}
	err = sessions.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		var exists bool
		if err := conn.QueryRow(ctx, `SELECT to_regclass('weir.inbox') IS NOT NULL`).Scan(&exists); err != nil || !exists {
			return err
		}
		return conn.QueryRow(ctx, `SELECT count(*) FROM weir.inbox`).Scan(&rows)
	})
	if err != nil {
		return 0, fmt.Errorf("count the rows of weir.inbox: %w", err)
	}
	return rows, nil
}
