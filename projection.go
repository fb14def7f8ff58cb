package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// ErrUnknownProjection: there is no projection of that name. Project makes one.
var ErrUnknownProjection = stream.ErrUnknownProjection

// ErrEventsMissing: retention or a deletion of records removed events of a partition that a projection has not handled yet. If the partition
// halted because of that, Projector.Halted has this error.
var ErrEventsMissing = errors.New("events are missing")

// Projection is a read model that a handler makes from the events of categories. Name, and one of Handler and BatchHandler, are required.
//
// A projection has runs. A run reads all events from the first one on, and makes a read model of its own, such as tables with
// the run's number in their names. Readers use the read model of one run. A higher Version, or RebuildProjection, begins a new run beside
// it. When the new run has caught up it takes over, and the old run ends.
type Projection struct {
	// Name is the projection's name. It has 1 to 100 bytes. All processes that project under one name share the partitions.
	Name string
	// Version is the version of the handler, 0 or more. A process works only on runs of its own version: so an old program keeps
	// its read model up to date while a new program makes the next one.
	Version int
	// Categories are the names of the categories to read. Default: all categories, including those that are created later.
	Categories []string
	// Handler handles one event. Calls for one stream come one after the other, in the order of its events; calls for streams in
	// different partitions run concurrently. After a crash an event may come again. With ProjectedEvent.CommitTx the handler's
	// writes happen exactly once.
	Handler func(ctx context.Context, e ProjectedEvent) error
	// BatchHandler handles up to MaxBatch events of one partition in one call, in their order, as Subscription.BatchHandler does. In a
	// transaction, call CommitTx on the last event.
	BatchHandler func(ctx context.Context, events []ProjectedEvent) error
	// MaxBatch is the most events that BatchHandler gets. Default 100.
	MaxBatch int
	// TakeOver, if not nil, is called when a run has caught up, before readers are to use it (ProjectionInfo.Run): for example to
	// rename tables. It may be called more than once, and in several processes concurrently. It is called again after it returned an error,
	// and if the run has fallen behind during the call: then after the run has caught up.
	TakeOver func(ctx context.Context, run int64) error

	// Retry says how often and how soon an event is tried again when its handler failed. Default: 15 attempts, which take one to two
	// minutes, so that the projection survives a restart of its database.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default Halt: its partition halts there until
	// ResumeProjection, because a read model that lacks an event is wrong from there on.
	DeadLetter DeadLetter
	// SkipMissing skips events that retention or a deletion of records removed before they were handled, and logs a warning. Default: the
	// partition halts there (ErrEventsMissing), also if its first events are missing when a run begins; that run does not take over while
	// the partition is halted.
	SkipMissing bool
	// Concurrency bounds how many calls of the handler run concurrently in this process. Default 0: one for each partition.
	Concurrency int
	// CommitEvery and Session are as in Subscription.
	CommitEvery, Session time.Duration
}

// ProjectedEvent is an event that a projection's handler gets.
type ProjectedEvent struct {
	StreamEvent
	Category string
	Run      int64 // the number of the run that the event is handled for, from 1
	Deleted  bool  // this is no event of the stream: it says that the stream was deleted. Version and Data mean nothing then
	Attempt  int   // how often this process has delivered it, from 1

	event Event
}

// CommitTx is Event.CommitTx: it commits, within the handler's own transaction, that the event was handled.
func (e ProjectedEvent) CommitTx(ctx context.Context, tx PgxTx) error {
	return e.event.CommitTx(ctx, tx)
}

// CommitSQLTx is CommitTx for database/sql.
func (e ProjectedEvent) CommitSQLTx(ctx context.Context, tx SQLTx) error {
	return e.event.CommitSQLTx(ctx, tx)
}

// ProjectionRun is one run of a projection.
type ProjectionRun struct {
	Number     int64
	Version    int
	Categories []string      // empty: all categories
	Group      string        // the run's consumer group
	Lag        int64         // how many records are still to be handled
	Behind     time.Duration // the highest age of a partition's first record that is still to be handled, by its Time and this process's clock; 0: there is none. A NewStreamEvent.Time in the past makes it larger
}

// ProjectionInfo describes a projection.
type ProjectionInfo struct {
	Name   string
	Run    ProjectionRun  // the run whose read model readers use
	Next   *ProjectionRun // the run that is to take over when it has caught up; nil: there is none
	Paused bool
}

// Projections lists the names of all projections.
func (l *Log) Projections(ctx context.Context) (names []string, err error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "list projections")
	}
	list, err := l.streams.Projections(ctx)
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names, err
}

// Projection describes a projection. It costs a few store calls, and one more for each partition that has events still to be
// handled.
func (l *Log) Projection(ctx context.Context, name string) (ProjectionInfo, error) {
	if err := l.usable(); err != nil {
		return ProjectionInfo{}, wrap(err, "describe projection %q", name)
	}
	p, err := l.streams.Projection(ctx, name)
	if err != nil {
		return ProjectionInfo{}, err
	}
	info := ProjectionInfo{Name: name, Paused: p.Paused}
	info.Run, err = l.describeRun(ctx, p.Run)
	if err == nil && p.Next != nil {
		info.Next = new(ProjectionRun)
		*info.Next, err = l.describeRun(ctx, *p.Next)
	}
	return info, wrap(err, "describe projection %q", name)
}

func (l *Log) describeRun(ctx context.Context, run stream.Run) (ProjectionRun, error) {
	r := ProjectionRun{Number: run.Number, Version: run.Version, Categories: run.Categories, Group: run.Group}
	places, err := l.placesOf(ctx, run)
	if err != nil {
		return r, err
	}
	at, err := l.projectedTo(ctx, r.Group, places)
	if err != nil || len(places) == 0 {
		return r, err
	}
	bounds, err := l.boundsOf(ctx, places)
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
		since, err := l.appendedAt(ctx, places[i].id, max(at[i], b.Bounds.First))
		if err != nil {
			return r, err
		}
		r.Behind = max(r.Behind, now.Sub(since))
	}
	return r, nil
}

// appendedAt returns the time of the first record at an offset or after it.
func (l *Log) appendedAt(ctx context.Context, id eventlog.Partition, from eventlog.Offset) (time.Time, error) {
	got, err := l.log.Fetch(ctx, eventlog.Want{Spans: []eventlog.Span{{Partition: id, From: from, MaxBytes: 1}}})
	if err != nil || len(got[0].Batches) == 0 {
		return time.Now(), err
	}
	first := got[0].Batches[0]
	raw := slices.Clone(first.Bytes)
	batch.Patch(raw, int64(first.Base), 0)
	for r, err := range batch.Records(raw, batch.DefaultMaxDecompressed) {
		if err != nil {
			break // a damaged batch is reported to its readers, not here
		}
		if eventlog.Offset(r.Offset) >= from {
			return time.UnixMilli(r.Timestamp), nil
		}
	}
	return time.Now(), nil
}

// projectedPlace is a partition that a projection reads.
type projectedPlace struct {
	key group.TopicPartition
	id  eventlog.Partition
}

// categoriesOf lists the categories that a run reads.
func (l *Log) categoriesOf(ctx context.Context, run stream.Run) ([]string, error) {
	if len(run.Categories) > 0 {
		return run.Categories, nil
	}
	return l.streams.Categories(ctx)
}

// placesOf lists the partitions that a run reads.
func (l *Log) placesOf(ctx context.Context, run stream.Run) (places []projectedPlace, err error) {
	categories, err := l.categoriesOf(ctx, run)
	if err != nil {
		return nil, err
	}
	for _, name := range categories {
		topic, err := l.log.Topic(ctx, name)
		if errors.Is(err, eventlog.ErrUnknownTopic) {
			continue // it was deleted, or is not there yet
		}
		if err != nil {
			return nil, err
		}
		for n, id := range topic.Partitions {
			places = append(places, projectedPlace{group.TopicPartition{Topic: topic.ID, Partition: int32(n)}, id})
		}
	}
	return places, nil
}

func (l *Log) boundsOf(ctx context.Context, places []projectedPlace) ([]eventlog.Slice, error) {
	ids := make([]eventlog.Partition, len(places))
	for i, pl := range places {
		ids[i] = pl.id
	}
	return l.log.Bounds(ctx, ids...)
}

// projectedTo returns the group's committed offsets in partitions; 0 if there is none.
func (l *Log) projectedTo(ctx context.Context, name string, places []projectedPlace) ([]eventlog.Offset, error) {
	keys := make([]group.TopicPartition, len(places))
	for i, p := range places {
		keys[i] = p.key
	}
	if len(keys) == 0 {
		return nil, nil
	}
	at := make([]eventlog.Offset, len(keys))
	if l.sql != nil { // this includes what handlers' transactions committed and the mover has not moved yet
		found, err := l.sql.Positions(ctx, name, keys)
		for i := range found {
			at[i] = max(found[i].Offset, 0)
		}
		return at, err
	}
	found, err := l.groups.Fetch(ctx, name, keys)
	for i := range found {
		at[i] = max(found[i].Offset, 0)
	}
	return at, err
}

// AwaitProjection waits until the projection has handled all events that a stream had at the time of the call, and those before them in
// the stream's partition. While another run takes over, it waits for both runs. For a stream that never existed it returns immediately.
// *InvalidError if the projection does not read the category.
func (l *Log) AwaitProjection(ctx context.Context, name, category, stream string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "await projection %q", name)
	}
	return wrap(l.awaitProjection(ctx, name, category, stream), "await projection %q of stream %q of category %q", name, stream, category)
}

func (l *Log) awaitProjection(ctx context.Context, name, category, stream string) error {
	p, err := l.streams.Projection(ctx, name)
	if err != nil {
		return err
	}
	c, err := l.streams.Category(ctx, category)
	if err != nil {
		return err
	}
	n, is, err := c.Place(ctx, stream)
	if err != nil || !is {
		return err
	}
	topic, err := l.log.TopicByID(c.ID())
	if err != nil {
		return err
	}
	place := projectedPlace{group.TopicPartition{Topic: topic.ID, Partition: n}, topic.Partitions[n]}
	bounds, err := l.log.Bounds(ctx, place.id)
	if err == nil {
		err = bounds[0].Err
	}
	if err != nil {
		return err
	}
	end := bounds[0].Bounds.Next
	late := errors.New("how far it has come could not be read in time")
	for pause := awaitFirst; ; pause = min(2*pause, awaitMax) {
		found, err := l.lateRun(ctx, p, category, place, end)
		now := p
		if err == nil {
			late = cmp.Or(found, errors.New("another run takes over"))
			now, err = l.streams.Projection(ctx, name)
		}
		switch {
		case err != nil && ctx.Err() == nil:
			return err
		case err == nil && found == nil && now.Run.Group == p.Run.Group && now.TakingOver == p.TakingOver:
			return nil // no other run began to take over while lateRun checked
		case err == nil:
			p = now
		}
		if !sleep(ctx, pause) {
			return fmt.Errorf("%w: %w%s", context.Cause(ctx), late, l.whyLate(ctx, p))
		}
	}
}

// lateRun returns an error that names a run that readers may use and that has not handled a partition up to an offset; nil: all have.
func (l *Log) lateRun(ctx context.Context, p stream.Projection, category string, place projectedPlace, end eventlog.Offset) (late, err error) {
	readers := 0
	for _, run := range p.Runs() {
		if !run.Reads(category) {
			continue
		}
		readers++
		if run.Group != p.Run.Group && run.Group != p.TakingOver && p.Run.Reads(category) {
			continue // readers do not use this run
		}
		at, err := l.projectedTo(ctx, run.Group, []projectedPlace{place})
		if err != nil {
			return nil, err
		}
		if at[0] < end || run.Group != p.Run.Group && run.Group != p.TakingOver {
			late = fmt.Errorf("run %d has handled partition %d up to offset %d of %d", run.Number, place.key.Partition, at[0], end)
		}
	}
	if readers == 0 {
		return nil, &InvalidError{What: "category", Value: category, Why: "the projection does not read it"}
	}
	return late, nil
}

// whyLate says what stops a projection, if the store answers within awaitReason; ctx has ended.
func (l *Log) whyLate(ctx context.Context, p stream.Projection) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), awaitReason)
	defer cancel()
	if p.Paused {
		return "; the projection is paused: ResumeProjection lets it go on"
	}
	d, err := l.groups.Describe(ctx, p.Run.Group)
	if errors.Is(err, ErrUnknownGroup) || err == nil && len(d.Members) == 0 {
		return "; no process works on it: start one that calls Project"
	}
	return ""
}

// The pauses of AwaitProjection between two store calls: from awaitFirst, doubled up to awaitMax.
const (
	awaitFirst = 2 * time.Millisecond
	awaitMax   = 50 * time.Millisecond
	// awaitReason bounds the search for the reason after the context has ended.
	awaitReason = 250 * time.Millisecond
)

// RebuildProjection begins a new run of a projection beside the run that readers use. The new run takes over when it has caught up. If there
// is a next run already, that run goes on, and no other begins.
func (l *Log) RebuildProjection(ctx context.Context, name string) error {
	return l.changeProjection("rebuild", name, func() error { _, err := l.streams.RebuildProjection(ctx, name); return err })
}

// PauseProjection stops a projection, in all processes within a second, until ResumeProjection. It does not wait for running calls of the
// handler.
func (l *Log) PauseProjection(ctx context.Context, name string) error {
	return l.changeProjection("pause", name, func() error { _, err := l.streams.PauseProjection(ctx, name); return err })
}

// ResumeProjection ends a PauseProjection. A partition that halted at an event tries the event again.
func (l *Log) ResumeProjection(ctx context.Context, name string) error {
	return l.changeProjection("resume", name, func() error { _, err := l.streams.ResumeProjection(ctx, name); return err })
}

// DeleteProjection deletes a projection and its consumer groups: Project with that name then begins anew. The read models stay. Close its
// projectors in all processes first; otherwise it returns ErrGroupInUse and changes nothing. If a group cannot be deleted after the
// projection, this is logged. The group expires later; no later run uses its name.
func (l *Log) DeleteProjection(ctx context.Context, name string) error {
	return l.changeProjection("delete", name, func() error {
		var groups []string
		err := l.streams.DeleteProjection(ctx, name, func(p stream.Projection) error {
			groups = groups[:0]
			for _, run := range p.Runs() {
				groups = append(groups, run.Group)
			}
			return l.unused(ctx, groups)
		})
		if err != nil {
			return err
		}
		for _, g := range groups {
			if err := l.groups.Delete(ctx, g); err != nil && !errors.Is(err, ErrUnknownGroup) {
				l.logger.Warn("a projection was deleted, and a group of it was not; it expires", "projection", name, "group", g, "err", err)
			}
		}
		return nil
	})
}

// unused returns ErrGroupInUse if any of the groups has members.
func (l *Log) unused(ctx context.Context, groups []string) error {
	for _, name := range groups {
		switch d, err := l.groups.Describe(ctx, name); {
		case errors.Is(err, ErrUnknownGroup):
		case err != nil:
			return err
		case len(d.Members) > 0:
			return fmt.Errorf("%w: %q has %d members; close the projectors of all processes", ErrGroupInUse, name, len(d.Members))
		}
	}
	return nil
}

func (l *Log) changeProjection(verb, name string, change func() error) error {
	err := l.usable()
	if err == nil {
		if err = change(); err == nil {
			l.tellProjectors(name)
		}
	}
	return wrap(err, "%s projection %q", verb, name)
}
