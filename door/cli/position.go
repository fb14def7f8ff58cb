package cli

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// resolve turns a position into an offset for every partition of the topics. An offset that a
// partition does not hold is moved to the nearest one that it holds, or to its end.
func resolve(ctx context.Context, admin *kadm.Client, at position, topics ...string) (kadm.ListedOffsets, error) {
	found, err := resolveEach(ctx, admin, at, topics...)
	return found, cmp.Or(err, found.Error())
}

// resolveEach is resolve, with an error for each partition whose offset is not known.
func resolveEach(ctx context.Context, admin *kadm.Client, at position, topics ...string) (kadm.ListedOffsets, error) {
	switch {
	case !at.at.IsZero():
		return admin.ListOffsetsAfterMilli(ctx, at.at.UnixMilli(), topics...)
	case at.offset == earliest:
		return admin.ListStartOffsets(ctx, topics...)
	case at.offset == latest:
		return admin.ListEndOffsets(ctx, topics...)
	}
	first, err := admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	target, err := admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	for topic, partitions := range target {
		for p, next := range partitions {
			next.Err = cmp.Or(next.Err, first[topic][p].Err)
			next.Offset = min(max(at.offset, first[topic][p].Offset), next.Offset)
			partitions[p] = next
		}
	}
	return target, nil
}
