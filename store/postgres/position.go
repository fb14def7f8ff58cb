package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir/eventlog"
)

// Positions tells which events a group handles next in some partitions, by topic and number, whether weir.commit_offset or a key says so: what
// weir.position tells, in one trip. −1: it has committed nothing there.
func (s *Store) Positions(ctx context.Context, group string, topics []eventlog.TopicID, partitions []int32) ([]eventlog.Offset, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	ids := make([]string, len(topics))
	for i, id := range topics {
		ids[i] = id.String()
	}
	offsets, err := retry(ctx, interrupted, func() ([]eventlog.Offset, error) {
		found, err := s.others.Query(ctx, `
			SELECT coalesce((weir.find_position($1, u.topic::uuid, u.partition)).place, -1)
			FROM unnest($2::text[], $3::int[]) WITH ORDINALITY AS u(topic, partition, nth)
			ORDER BY u.nth`, group, ids, partitions)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(found, pgx.RowTo[eventlog.Offset])
	})
	if err != nil {
		return nil, fmt.Errorf("read %d positions of group %q: %w", len(topics), group, readFailed(err))
	}
	return offsets, nil
}

// Carried reports whether all that a group committed with weir.commit_offset is where its members look for it: one trip.
func (s *Store) Carried(ctx context.Context, group string) (carried bool, err error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	carried, err = retry(ctx, interrupted, func() (all bool, err error) {
		// All of the inbox is walked only for a group of which SQL knows what its keys do not: it may also be that they were deleted.
		err = s.others.QueryRow(ctx, `
			SELECT NOT EXISTS (
				SELECT FROM weir.consumer c
				CROSS JOIN LATERAL weir.find_position(c.grp, c.topic, c.partition) AS found
				LEFT JOIN LATERAL (
					SELECT (weir.told(s.value) ->> 'offset')::bigint AS place FROM weir.state s
					WHERE s.key = 'group/offset/' || weir.escape(c.grp) || '/' || replace(c.topic::text, '-', '') || '/' || c.partition
					ORDER BY s.turn DESC LIMIT 1
				) AS key ON true
				WHERE c.grp = $1 AND found.place IS DISTINCT FROM key.place
			) OR NOT EXISTS (SELECT FROM weir.inbox i WHERE i.grp = $1)`, group).Scan(&all)
		return all, err
	})
	if err != nil {
		return false, fmt.Errorf("see whether the positions of group %q are carried: %w", group, readFailed(err))
	}
	return carried, nil
}
