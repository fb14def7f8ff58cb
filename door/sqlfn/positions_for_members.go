package sqlfn

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
)

// Door gives members of groups the offsets that transactions committed.
var _ group.Beside = (*Door)(nil)

const (
	// noBase: there is no key, or it does not name its base.
	noBase = -1
	// forgotten: the group's offset was deleted after SQL committed it. The group starts again, not
	// from SQL's offset.
	forgotten = -2
)

// positionsOnce bounds the positions that one statement reads.
const positionsOnce = 1000

// Positions returns a group's committed offsets, those that the mover has not yet moved from
// weir.commit_offset to a key included: one statement per thousand.
//
// All of the inbox is scanned only if SQL committed a position that no key has: the position may be
// on its way, or was deleted.
func (d *Door) Positions(ctx context.Context, name string, of []group.TopicPartition) ([]group.Position, error) {
	var all []group.Position
	for part := range slices.Chunk(of, positionsOnce) {
		topics, numbers := make([]string, len(part)), make([]int32, len(part))
		for i, tp := range part {
			topics[i], numbers[i] = tp.Topic.String(), tp.Partition
		}
		var found []group.Position
		err := d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
			rows, err := conn.Query(ctx, `
				SELECT CASE WHEN gone THEN -1 ELSE coalesce(p.place, -1) END, CASE WHEN gone THEN $4 ELSE coalesce(p.base, $5) END
				FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS u(topic, partition, nth)
				CROSS JOIN LATERAL weir.find_position($1, u.topic::uuid, u.partition) AS p
				CROSS JOIN LATERAL (
					SELECT p.place IS NOT NULL
					   AND NOT EXISTS (SELECT FROM weir.newest_state(weir.offset_key($1, u.topic::uuid, u.partition)) AS s WHERE s.value IS NOT NULL)
					   AND NOT EXISTS (SELECT FROM weir.inbox i WHERE i.grp = $1)
				) AS g(gone)
				WHERE weir.still($6, $7, $8)
				ORDER BY u.nth`, append([]any{name, topics, numbers, int64(forgotten), int64(noBase)}, d.store.Still()...)...)
			if err != nil {
				return err
			}
			found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[group.Position])
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read %d positions of group %q: %w", len(part), name, err)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Keeps implements group.Beside with one statement per thousand partitions.
func (d *Door) Keeps(ctx context.Context, name string, of []group.TopicPartition) (all []bool, err error) {
	for part := range slices.Chunk(of, positionsOnce) {
		var kept []bool
		err := d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
			rows, err := conn.Query(ctx, `
				SELECT EXISTS (SELECT FROM weir.consumer c WHERE c.grp = ($1::text[])[1] AND c.topic = u.topic AND c.partition = u.partition)
				FROM unnest($2::text[]::uuid[], $3::int[]) WITH ORDINALITY AS u(topic, partition, nth)
				WHERE weir.still($4, $5, $6)
				ORDER BY u.nth`, append(namedBy([]string{name}, part), d.store.Still()...)...)
			if err != nil {
				return err
			}
			kept, err = pgx.CollectRows(rows, pgx.RowTo[bool])
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look which of %d positions of group %q SQL committed: %w", len(part), name, err)
		}
		all = append(all, kept...)
	}
	return all, nil
}

const (
	// carriedWithin bounds how long Carried waits, carriedPoll is how often it looks.
	carriedWithin = 3 * time.Second
	carriedPoll   = 20 * time.Millisecond
)

// named is the condition by which a row is of one of the groups $1, and of one of the partitions $3
// of the topics $2, or of any partition if $2 is NULL.
const named = `grp = ANY ($1) AND ($2::text[] IS NULL OR (topic, partition) IN (SELECT * FROM unnest($2::text[]::uuid[], $3::int[])))`

// namedBy returns the arguments of named.
func namedBy(groups []string, of []group.TopicPartition) []any {
	if of == nil {
		return []any{groups, nil, nil}
	}
	topics, numbers := make([]string, len(of)), make([]int32, len(of))
	for i, tp := range of {
		topics[i], numbers[i] = tp.Topic.String(), tp.Partition
	}
	return []any{groups, topics, numbers}
}

// Carried implements group.Beside: it waits until the inbox has no position of these groups in
// these partitions.
func (d *Door) Carried(ctx context.Context, groups []string, of []group.TopicPartition) error {
	for end := time.Now().Add(carriedWithin); ; {
		carried := false
		err := d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM weir.inbox WHERE `+named+`) WHERE weir.still($4, $5, $6)`,
				append(namedBy(groups, of), d.store.Still()...)...).Scan(&carried)
		})
		switch {
		case err != nil:
			return fmt.Errorf("look for positions of %d groups, such as %q: %w", len(groups), groups[:min(1, len(groups))], err)
		case carried:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w after %v: try again later", group.ErrNotCarried, carriedWithin)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", group.ErrNotCarried, context.Cause(ctx))
		case <-time.After(carriedPoll):
		}
	}
}

// Forget implements group.Beside with two statements. The second one sees what was committed until
// the rows were locked: a position that is in the inbox, which no key has yet, stays.
func (d *Door) Forget(ctx context.Context, groups []string, of []group.TopicPartition) error {
	err := d.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		return pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `SELECT id FROM weir.consumer WHERE `+named+` FOR UPDATE SKIP LOCKED`, namedBy(groups, of)...)
			if err != nil {
				return err
			}
			locked, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil || len(locked) == 0 {
				return err
			}
			_, err = tx.Exec(ctx, `
				WITH positions AS (
					DELETE FROM weir.consumer c
					WHERE c.id = ANY ($1) AND NOT EXISTS (SELECT FROM weir.inbox i WHERE (i.grp, i.topic, i.partition) = (c.grp, c.topic, c.partition))
					RETURNING c.id
				)
				DELETE FROM weir.consumed x USING positions p WHERE x.consumer = p.id`, locked)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("delete the positions that SQL committed for %d groups: %w", len(groups), err)
	}
	return nil
}

// Mark returns the metadata of an offset that continues from a position.
func (d *Door) Mark(next eventlog.Offset, from group.Position) string {
	if from.Base == forgotten {
		return ""
	}
	return mark(next, from.Base)
}

// mark returns the metadata by which a committed offset says on which base it continues:
// weir.is_carried and weir.base_of read it.
func mark(next eventlog.Offset, base int64) string {
	if base == noBase {
		return fmt.Sprintf("weir.commit_offset %d", next)
	}
	return fmt.Sprintf("weir.commit_offset %d %d", next, base)
}
