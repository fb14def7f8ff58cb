// Package projection describes and controls projections: read models that handlers make from the
// events of streams. Each run of a projection is a consumer group, so how far it has come is what
// its group has committed. The handlers run in the Go library; every door can tell how a projection
// is doing, pause it and have it rebuilt.
package projection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// Positions knows the offsets that handlers committed in SQL transactions, too.
type Positions interface {
	Positions(ctx context.Context, group string, of []group.TopicPartition) ([]group.Position, error)
}

// Projections are the projections of a log. Methods may be called concurrently.
type Projections struct {
	log     *eventlog.Log
	streams *stream.Streams
	groups  *group.Coordinator
	sql     Positions // nil: no offsets are committed with SQL
	logger  *slog.Logger

	mu         sync.Mutex // guards projectors
	projectors map[*Projector]struct{}
}

// New returns the projections of a log. sql is nil on stores without SQL transactions.
func New(log *eventlog.Log, streams *stream.Streams, groups *group.Coordinator, sql Positions, logger *slog.Logger) *Projections {
	return &Projections{log: log, streams: streams, groups: groups, sql: sql, logger: logger, projectors: make(map[*Projector]struct{})}
}

// Run is one run of a projection.
type Run struct {
	Number     int64
	Version    int
	Categories []string      // empty: all categories
	Group      string        // the run's consumer group
	Lag        int64         // how many records are still to be handled
	Behind     time.Duration // how old the first record is that is still to be handled, in the partition where it is oldest: this process's clock minus the record's Time, so a NewStreamEvent.Time in the past makes it larger; 0: all are handled
}

// Info describes a projection.
type Info struct {
	Name   string
	Run    Run  // the run whose read model readers use
	Next   *Run // the run that is to take over when it has caught up; nil: there is none
	Paused bool
}

// Names lists the names of all projections, by the byte order of their escaped names
// (url.PathEscape).
func (ps *Projections) Names(ctx context.Context) (names []string, err error) {
	list, err := ps.streams.Projections(ctx)
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names, err
}

// Describe describes a projection. It costs a few store calls, and one more for each partition that
// has events still to be handled.
func (ps *Projections) Describe(ctx context.Context, name string) (Info, error) {
	p, err := ps.streams.Projection(ctx, name)
	if err != nil {
		return Info{}, err
	}
	return ps.describe(ctx, p)
}

// All describes all projections. It costs as much as Describe of each.
func (ps *Projections) All(ctx context.Context) (all []Info, err error) {
	list, err := ps.streams.Projections(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		info, err := ps.describe(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, info)
	}
	return all, nil
}

func (ps *Projections) describe(ctx context.Context, p stream.Projection) (info Info, err error) {
	info = Info{Name: p.Name, Paused: p.Paused}
	info.Run, err = ps.describeRun(ctx, p.Run)
	if err == nil && p.Next != nil {
		info.Next = new(Run)
		*info.Next, err = ps.describeRun(ctx, *p.Next)
	}
	return info, err
}

func (ps *Projections) describeRun(ctx context.Context, run stream.Run) (Run, error) {
	r := Run{Number: run.Number, Version: run.Version, Categories: run.Categories, Group: run.Group}
	places, err := ps.places(ctx, run)
	if err != nil {
		return r, err
	}
	at, err := ps.handledTo(ctx, r.Group, places)
	if err != nil || len(places) == 0 {
		return r, err
	}
	bounds, err := ps.bounds(ctx, places)
	if err != nil {
		return r, err
	}
	now := time.Now()
	for i, b := range bounds {
		lag := b.Bounds.Lag(at[i])
		if lag == 0 {
			continue
		}
		r.Lag += lag
		since, err := ps.appendedAt(ctx, places[i].ID, max(at[i], b.Bounds.First))
		if err != nil {
			return r, err
		}
		r.Behind = max(r.Behind, now.Sub(since))
	}
	return r, nil
}

// appendedAt returns the time of the first record at an offset or after it.
func (ps *Projections) appendedAt(ctx context.Context, id eventlog.Partition, from eventlog.Offset) (time.Time, error) {
	got, err := ps.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: id, From: from, MaxBytes: 1}}})
	if err != nil || len(got[0].Batches) == 0 {
		return time.Now(), err
	}
	for r, err := range got[0].Batches[0].Decode() {
		if err != nil {
			break // a damaged batch is reported to its readers, not here
		}
		if eventlog.Offset(r.Offset) >= from {
			return time.UnixMilli(r.Timestamp), nil
		}
	}
	return time.Now(), nil
}

// Place is a partition that a projection reads.
type Place struct {
	Key group.TopicPartition
	ID  eventlog.Partition
}

// categories lists the categories that a run reads.
func (ps *Projections) categories(ctx context.Context, run stream.Run) ([]string, error) {
	if len(run.Categories) > 0 {
		return run.Categories, nil
	}
	return ps.streams.Categories(ctx)
}

// places lists the partitions that a run reads.
func (ps *Projections) places(ctx context.Context, run stream.Run) (places []Place, err error) {
	categories, err := ps.categories(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, name := range categories {
		topic, err := ps.log.Topic(ctx, name)
		if errors.Is(err, eventlog.ErrUnknownTopic) {
			continue // the topic was deleted, or is not there yet
		}
		if err != nil {
			return nil, err
		}
		for n, id := range topic.Partitions {
			places = append(places, Place{group.TopicPartition{Topic: topic.ID, Partition: int32(n)}, id})
		}
	}
	return places, nil
}

// bounds returns the bounds of partitions.
func (ps *Projections) bounds(ctx context.Context, places []Place) ([]eventlog.Slice, error) {
	ids := make([]eventlog.Partition, len(places))
	for i, pl := range places {
		ids[i] = pl.ID
	}
	return ps.log.Bounds(ctx, ids...)
}

// handledTo returns the offsets that a run's group has committed in partitions; 0 if there is none.
func (ps *Projections) handledTo(ctx context.Context, name string, places []Place) ([]eventlog.Offset, error) {
	keys := make([]group.TopicPartition, len(places))
	for i, p := range places {
		keys[i] = p.Key
	}
	if len(keys) == 0 {
		return nil, nil
	}
	at := make([]eventlog.Offset, len(keys))
	if ps.sql != nil { // this includes what handlers' transactions committed and the mover has not moved yet
		found, err := ps.sql.Positions(ctx, name, keys)
		for i := range found {
			at[i] = max(found[i].Offset, 0)
		}
		return at, err
	}
	found, err := ps.groups.Fetch(ctx, name, keys)
	for i := range found {
		at[i] = max(found[i].Offset, 0)
	}
	return at, err
}

// Rebuild begins a new run of a projection beside the run that readers use. The new run takes over
// when it has caught up. If there is a next run already, that run goes on, and no other begins.
func (ps *Projections) Rebuild(ctx context.Context, name string) error {
	_, err := ps.streams.RebuildProjection(ctx, name)
	ps.tell(name)
	return err
}

// Pause stops a projection, in all processes within a second, until Resume. It does not wait for
// running calls of the handler.
func (ps *Projections) Pause(ctx context.Context, name string) error {
	_, err := ps.streams.PauseProjection(ctx, name)
	ps.tell(name)
	return err
}

// Resume ends a Pause. A partition that halted at an event tries the event again.
func (ps *Projections) Resume(ctx context.Context, name string) error {
	_, err := ps.streams.ResumeProjection(ctx, name)
	ps.tell(name)
	return err
}

// Delete deletes a projection and its consumer groups. The read models stay. group.ErrNotEmpty if a
// process works on it; then nothing changes. If a group cannot be deleted after the projection,
// this is logged. The group expires later; no later run uses its name.
func (ps *Projections) Delete(ctx context.Context, name string) error {
	var groups []string
	err := ps.streams.DeleteProjection(ctx, name, func(p stream.Projection) error {
		groups = groups[:0]
		for _, run := range p.Runs() {
			groups = append(groups, run.Group)
		}
		return ps.unused(ctx, groups)
	})
	ps.tell(name)
	if err != nil {
		return err
	}
	for _, g := range groups {
		if err := ps.groups.Delete(ctx, g); err != nil && !errors.Is(err, group.ErrNotFound) {
			ps.logger.Warn("a projection was deleted, but one of its groups was not; the group expires later", "projection", name, "group", g, "err", err)
		}
	}
	return nil
}

// unused returns group.ErrNotEmpty if any of the groups has members.
func (ps *Projections) unused(ctx context.Context, groups []string) error {
	for _, name := range groups {
		switch d, err := ps.groups.Describe(ctx, name); {
		case errors.Is(err, group.ErrNotFound):
		case err != nil:
			return err
		case len(d.Members) > 0:
			return fmt.Errorf("%w: %q has %d members; close the projectors of all processes", group.ErrNotEmpty, name, len(d.Members))
		}
	}
	return nil
}
