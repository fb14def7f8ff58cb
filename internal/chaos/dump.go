package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// dumpPositions writes into the history where groups are, by what commits of transactions say and
// by what the log says.
func (w *world) dumpPositions(ctx context.Context) {
	for _, question := range []string{
		`SELECT c.grp, t.name, c.partition, x.next_offset, x.base, x.committed_at::text, x.writes FROM weir.consumer c
			JOIN weir.topic t ON t.id = c.topic CROSS JOIN LATERAL (SELECT * FROM weir.consumed x WHERE x.consumer = c.id ORDER BY x.turn DESC LIMIT 1) x ORDER BY 1, 2, 3`,
		`SELECT grp, topic, partition, member, committed_offset, end_offset FROM weir.groups ORDER BY 1, 2, 3`,
		`SELECT count(*), min(id), max(id), count(grp) FROM weir.inbox`,
	} {
		rows, err := w.sql.Query(ctx, question)
		if err == nil {
			var text []string
			text, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
				values, err := row.Values()
				return fmt.Sprint(values...), err
			})
			for _, line := range text {
				w.history.Add("positions: " + line)
			}
		}
		if err != nil {
			w.history.Add(fmt.Sprintf("positions: %v", err))
		}
	}
}
