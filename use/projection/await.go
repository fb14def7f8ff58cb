package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// Await waits until the projection has handled all events that a stream had at the time of the
// call, and those before them in the stream's partition. It waits for the run that readers use; and
// once the next run has caught up and takes over, for both runs. For a stream that never existed it
// returns immediately. *InvalidError if the projection does not read the category.
func (ps *Projections) Await(ctx context.Context, name, category, stream string) error {
	p, err := ps.streams.Projection(ctx, name)
	if err != nil {
		return err
	}
	c, err := ps.streams.Category(ctx, category)
	if err != nil {
		return err
	}
	n, is, err := c.Place(ctx, stream)
	if err != nil || !is {
		return err
	}
	topic, err := ps.log.TopicByID(c.ID())
	if err != nil {
		return err
	}
	place := Place{group.TopicPartition{Topic: topic.ID, Partition: n}, topic.Partitions[n]}
	bounds, err := ps.log.Bounds(ctx, place.ID)
	if err == nil {
		err = bounds[0].Err
	}
	if err != nil {
		return err
	}
	end := bounds[0].Bounds.Next // not Stable: what the caller appended may lie above it
	late := errors.New("its progress could not be read in time")
	for pause := awaitFirst; ; pause = min(2*pause, awaitMax) {
		found, err := ps.lateRun(ctx, p, category, place, end)
		now := p
		if err == nil {
			late = cmp.Or(found, errors.New("another run is taking over"))
			now, err = ps.streams.Projection(ctx, name)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && found == nil && now.Run.Group == p.Run.Group && now.TakingOver == p.TakingOver:
			return nil // no other run began to take over while lateRun checked
		case err == nil:
			p = now
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w%s", context.Cause(ctx), late, ps.whyLate(ctx, p))
		}
	}
}

// lateRun checks the runs that readers may use. If one has not handled a partition up to an offset,
// it returns an error that names the run; nil: all have.
func (ps *Projections) lateRun(ctx context.Context, p stream.Projection, category string, place Place, end eventlog.Offset) (late, err error) {
	readers := 0
	for _, run := range p.Runs() {
		if !run.Reads(category) {
			continue
		}
		readers++
		if run.Group != p.Run.Group && run.Group != p.TakingOver && p.Run.Reads(category) {
			continue // readers do not use this run
		}
		at, err := ps.handledTo(ctx, run.Group, []Place{place})
		if err != nil {
			return nil, err
		}
		if at[0] < end || run.Group != p.Run.Group && run.Group != p.TakingOver {
			late = fmt.Errorf("run %d has handled partition %d up to offset %d of %d", run.Number, place.Key.Partition, at[0], end)
		}
	}
	if readers == 0 {
		return nil, &eventlog.InvalidError{What: "category", Value: category, Why: "the projection does not read it"}
	}
	return late, nil
}

// whyLate says what stops a projection, if the store answers within awaitReason; ctx has ended.
func (ps *Projections) whyLate(ctx context.Context, p stream.Projection) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awaitReason)
	defer cancel()
	if p.Paused {
		return "; the projection is paused: resume it"
	}
	d, err := ps.groups.Describe(ctx, p.Run.Group)
	if errors.Is(err, group.ErrNotFound) || err == nil && len(d.Members) == 0 {
		return "; no process works on it: start one that calls Project"
	}
	return ""
}

// The pauses of Await between two store calls: from awaitFirst, doubled up to awaitMax.
const (
	awaitFirst = 2 * time.Millisecond
	awaitMax   = 50 * time.Millisecond
	// awaitReason bounds the search for the reason after the context has ended.
	awaitReason = 250 * time.Millisecond
)
