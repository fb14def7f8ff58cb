package deliver

import (
	"context"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Read calls visit for each record of a partition, without a group: from a position up to the end
// that the partition had when Read began, or until visit returns false. If the store is rewound
// meanwhile, Read returns an error if records that it passed on were lost; otherwise it ends at the
// new end.
func Read(ctx context.Context, log *eventlog.Log, of Place, from Position, visit func(batch.Record) bool) error {
	epoch := log.LeaderEpoch()
	bounds, err := log.Bounds(ctx, of.ID)
	if err == nil {
		err = bounds[0].Err
	}
	if err != nil {
		return err
	}
	starts, err := from.resolveIn(ctx, log, []Place{of}, bounds)
	if err != nil {
		return err
	}
	r := reader{log: log, id: of.ID, epoch: epoch, next: starts[0]}
	for end := bounds[0].Bounds.Stable(); r.next < end; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		before := r.epoch
		outside, err := r.more(ctx, 0)
		if outside != nil && outside.Asked > outside.Next {
			return outside // the store was rewound, and lost what was passed on
		}
		if _, cut, known := log.EpochEnd(of.ID, before, end); known && r.epoch != before {
			end = cut // what follows was published after Read began
		}
		for _, e := range r.queue {
			if e.at() >= end || !visit(e.Record) {
				return nil
			}
		}
		r.take(len(r.queue))
		if err != nil {
			return err
		}
	}
	return nil
}
