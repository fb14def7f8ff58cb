package main

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/judge"
)

// judgeBillsBefore sees, before a topic is deleted, that groups have billed all that they committed
// there. finalCheck sees only the topics that are left: what a group skips in a topic that passes
// would be forgotten with it.
func (w *world) judgeBillsBefore(ctx context.Context, l *judge.Life) {
	if !w.postgres() {
		return
	}
	for _, g := range groups {
		if !g.bills || !w.opt.acts(g) || !slices.Contains(g.topics, l.Name) {
			continue
		}
		try, cancel := context.WithTimeout(ctx, clientPatience)
		err := w.judgeBillsIn(try, g, l)
		cancel()
		if err == nil {
			w.counts.add("bills judged before a deletion")
		}
	}
}

// judgeBillsIn asks for the positions first: a bill is committed together with the position above
// it, and is never removed. While the database restarts there is an error, and nothing is judged.
func (w *world) judgeBillsIn(ctx context.Context, g group, l *judge.Life) error {
	rows, err := w.sql.Query(ctx, `SELECT n, weir.position($1, t.name, n) FROM weir.topics t, generate_series(0, t.partitions - 1) AS n
		WHERE t.id = $2::uuid`, g.name, l.ID.String())
	if err != nil {
		return err
	}
	committed := map[int32]int64{}
	var n int32
	var at *int64
	if _, err := pgx.ForEachRow(rows, []any{&n, &at}, func() error {
		if at != nil {
			committed[n] = *at
		}
		return nil
	}); err != nil {
		return err
	}
	below := w.model.KnownBelow(l, committed)
	var values []string
	for _, s := range below {
		values = append(values, s.Value)
	}
	if rows, err = w.sql.Query(ctx, `SELECT value FROM bills WHERE grp = $1 AND value = ANY($2)`, g.name, values); err != nil {
		return err
	}
	billed, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	is := map[string]bool{}
	for _, v := range billed {
		is[v] = true
	}
	for _, s := range below {
		if !is[s.Value] {
			w.model.Broken("G1", []string{g.name, l.Name}, "group %s committed %d of %s/%d, and there is no bill for offset %d, %s",
				g.name, committed[s.Partition], l, s.Partition, s.Offset, s.Value)
			break
		}
	}
	return nil
}
