package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/internal/judge"
)

// runSQL is a group of SQL sessions that commit how far they are with what they write: two of them,
// on the same partitions, of which weir.commit_offset lets one win each time. They run until the
// world rests.
func runSQL(ctx context.Context, w *world, g group) {
	for i := range 2 {
		w.members.Go(func() { w.sqlConsumer(g, fmt.Sprintf("%s-%d", g.name, i)) })
	}
	<-ctx.Done()
}

func (w *world) sqlConsumer(g group, name string) {
	random := w.random("member " + name)
	for w.handling() {
		topic, partition := g.topics[random.IntN(len(g.topics))], int32(random.IntN(6))
		n, err := w.sqlRound(g.name, name, topic, partition)
		if err != nil {
			w.history.Add(fmt.Sprintf("%s rolls back %s/%d: %v", name, topic, partition, err), g.name)
		}
		if err != nil || n == 0 {
			pause(context.Background(), time.Duration(20+random.IntN(100))*time.Millisecond)
		}
		w.counts.addN("handled by "+g.name, n)
	}
}

// sqlRound reads what comes next in a partition, bills it and commits the offset, in one
// transaction.
func (w *world) sqlRound(grp, name, topic string, partition int32) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), clientPatience)
	defer cancel()
	var got []judge.Sight
	err = pgx.BeginFunc(ctx, w.sql, func(tx pgx.Tx) error {
		got = nil
		var from *int64
		if err := tx.QueryRow(ctx, `SELECT weir.position($1, $2, $3)`, grp, topic, partition).Scan(&from); err != nil {
			return err
		}
		if from == nil {
			from = new(int64)
		}
		rows, err := tx.Query(ctx, `SELECT "offset", value_text FROM weir.events($1, from_offset => $2, partition => $3, max_events => 20)`, topic, *from, partition)
		if err != nil {
			return err
		}
		got, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s judge.Sight, err error) {
			s.Topic, s.Partition = topic, partition
			return s, row.Scan(&s.Offset, &s.Value)
		})
		if err != nil || len(got) == 0 {
			return err
		}
		for _, s := range got {
			if _, err := tx.Exec(ctx, `INSERT INTO bills VALUES ($1, $2)`, grp, s.Value); err != nil {
				return err
			}
		}
		_, err = tx.Exec(ctx, `SELECT weir.commit_offset($1, $2, $3, $4, from_offset => $5)`, grp, topic, partition, got[len(got)-1].Offset+1, *from)
		return err
	})
	if err != nil {
		return 0, err
	}
	if len(got) > 0 {
		w.model.Deliver(grp, name, true, got...)
	}
	return len(got), nil
}
