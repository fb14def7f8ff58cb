package cli

import (
	"cmp"
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// resolve turns a position into an offset for every partition of the topics. An offset that a partition does not hold is
// moved to the nearest one that it holds, or to its end.
func resolve(ctx context.Context, admin *kadm.Client, at position, topics ...string) (kadm.ListedOffsets, error) {
	list := func(offsets kadm.ListedOffsets, err error) (kadm.ListedOffsets, error) {
		return offsets, cmp.Or(err, offsets.Error())
	}
	switch {
	case !at.at.IsZero():
		return list(admin.ListOffsetsAfterMilli(ctx, at.at.UnixMilli(), topics...))
	case at.offset == earliest:
		return list(admin.ListStartOffsets(ctx, topics...))
	case at.offset == latest:
		return list(admin.ListEndOffsets(ctx, topics...))
	}
	first, err := list(admin.ListStartOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	target, err := list(admin.ListEndOffsets(ctx, topics...))
	if err != nil {
		return nil, err
	}
	for topic, partitions := range target {
		for p, next := range partitions {
			next.Offset = min(max(at.offset, first[topic][p].Offset), next.Offset)
			partitions[p] = next
		}
	}
	return target, nil
}
