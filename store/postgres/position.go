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
