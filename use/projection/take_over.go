package projection

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/stream"
)

// caughtUpWithin is the highest age of a goal. After that a new goal is read from the store.
const caughtUpWithin = 2 * time.Second

// goal is what a run has to reach to take over: the ends of its partitions, read at the time set.
type goal struct {
	run  int64
	set  time.Time
	ends map[eventlog.Partition]eventlog.Offset
}

// takeOver lets the next run take over if it has reached a recent goal and has handled all that the
// current run has handled.
func (j *Projector) takeOver(ctx context.Context, p stream.Projection) error {
	places, err := j.ps.places(ctx, *p.Next)
	if err != nil {
		return err
	}
	now := time.Now()
	if j.goal.run != p.Next.Number || now.Sub(j.goal.set) > caughtUpWithin {
		if j.goal, err = j.newGoal(ctx, p, places, now); err != nil {
			return err
		}
	}
	caughtUp, err := j.caughtUp(ctx, p, places)
	if err != nil || !caughtUp {
		return err
	}
	// From here on Await waits for both runs. Earlier calls waited only for the current run, so the
	// next run must catch up with it again.
	if _, err := j.ps.streams.AnnounceTakeOver(ctx, p.Name, p.Next.Number); err != nil {
		return err
	}
	if caughtUp, err = j.caughtUp(ctx, p, places); err != nil || !caughtUp {
		return err
	}
	if j.opts.TakeOver != nil {
		if err := recovered.Do(func() error { return j.opts.TakeOver(ctx, p.Next.Number) }); err != nil {
			return fmt.Errorf("run %d has caught up and cannot take over: %w", p.Next.Number, err)
		}
		// TakeOver may have taken long, and the current run may have handled more events.
		if caughtUp, err = j.caughtUp(ctx, p, places); err != nil || !caughtUp {
			return err
		}
	}
	if _, err := j.ps.streams.TakeOver(ctx, p.Name, p.Next.Number); err != nil {
		return err
	}
	j.ps.logger.Info("a run of a projection has taken over", "projection", p.Name, "run", p.Next.Number, "version", p.Next.Version)
	j.poke() // to end the older run
	return nil
}

// caughtUp reports whether the next run has reached the goal and has handled all that the current
// run has handled.
func (j *Projector) caughtUp(ctx context.Context, p stream.Projection, places []Place) (bool, error) {
	present, err := j.ps.handledTo(ctx, p.Run.Group, places)
	if err != nil {
		return false, err
	}
	next, err := j.ps.handledTo(ctx, p.Next.Group, places)
	if err != nil {
		return false, err
	}
	for i, pl := range places {
		if next[i] < max(j.goal.ends[pl.ID], present[i]) {
			return false, nil
		}
	}
	return true, nil
}

func (j *Projector) newGoal(ctx context.Context, p stream.Projection, places []Place, now time.Time) (goal, error) {
	g := goal{run: p.Next.Number, set: now, ends: make(map[eventlog.Partition]eventlog.Offset, len(places))}
	if len(places) == 0 {
		return g, nil
	}
	bounds, err := j.ps.bounds(ctx, places)
	if err != nil {
		return goal{}, err
	}
	for i, b := range bounds {
		if end := b.Bounds.Stable(); end > b.Bounds.First {
			g.ends[places[i].ID] = end
		}
	}
	return g, nil
}
