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
				ORDER BY u.nth`, name, topics, numbers, int64(forgotten), int64(noBase))
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

const (
	// carriedWithin bounds how long Carried waits, carriedPoll is how often it looks.
	carriedWithin = 3 * time.Second
	carriedPoll   = 20 * time.Millisecond
)

// Carried waits until no position of the groups is in the inbox.
func (d *Door) Carried(ctx context.Context, groups []string) error {
	for end := time.Now().Add(carriedWithin); ; {
		carried := false
		err := d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
			return conn.QueryRow(ctx, `SELECT NOT EXISTS (SELECT FROM weir.inbox i WHERE i.grp = ANY ($1))`, groups).Scan(&carried)
		})
		switch {
		case err != nil:
			return fmt.Errorf("look for positions of %d groups, such as %q: %w", len(groups), groups[:min(1, len(groups))], err)
		case carried:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%w: after %v, positions that SQL committed are not yet moved to the group: try again later", eventlog.ErrUnavailable, carriedWithin)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: positions that SQL committed are not yet moved to the group: %w", eventlog.ErrUnavailable, context.Cause(ctx))
		case <-time.After(carriedPoll):
		}
	}
}

// Forget implements group.Beside with one statement.
func (d *Door) Forget(ctx context.Context, groups []string) error {
	err := d.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `
			WITH idle AS MATERIALIZED (
				SELECT c.id FROM weir.consumer c WHERE c.grp = ANY ($1) FOR UPDATE SKIP LOCKED
			), positions AS (
				DELETE FROM weir.consumed x USING idle i WHERE x.consumer = i.id
			)
			DELETE FROM weir.consumer c USING idle i WHERE c.id = i.id`, groups)
		return err
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
