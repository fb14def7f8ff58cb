package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/stream"
)

// ErrUnknownProjection: there is no projection of that name. Project makes one.
var ErrUnknownProjection = stream.ErrUnknownProjection

// ErrEventsMissing: retention or a deletion of records removed events of a partition that a
// projection has not handled yet. If the partition halted because of that, Projector.Halted has
// this error.
var ErrEventsMissing = deliver.ErrEventsMissing

// Projection is a read model that a handler makes from the events of categories. Name, and one of
// Handler and BatchHandler, are required.
//
// A projection has runs. A run reads all events from the first one on, and makes a read model of
// its own, such as tables with the run's number in their names. Readers use the read model of one
// run. A higher Version, or RebuildProjection, begins a new run beside it. When the new run has
// caught up it takes over, and the old run ends.
type Projection struct {
	// Name is the projection's name. It has 1 to 100 bytes. All processes that project under one
	// name share the partitions.
	Name string
	// Version is the version of the handler, 0 or more. A process works only on runs of its own
	// version: so an old program keeps its read model up to date while a new program makes the next
	// one.
	Version int
	// Categories are the names of the categories to read. Default: all categories, including those
	// that are created later.
	Categories []string
	// Handler handles one event. Calls for one stream come one after the other, in the order of its
	// events; calls for streams in different partitions run concurrently. After a crash an event
	// may come again. On PostgreSQL ProjectedEvent.CommitTx makes the handler's writes happen
	// exactly once. On other stores it returns ErrNotPostgres: there, write each event's Version
	// into the row that it changes, and skip an event whose Version is not above the row's.
	Handler func(ctx context.Context, e ProjectedEvent) error
	// BatchHandler handles up to MaxBatch events of one partition in one call, in their order, as
	// Subscription.BatchHandler does. In a transaction, call CommitTx on the last event.
	BatchHandler func(ctx context.Context, events []ProjectedEvent) error
	// MaxBatch is the most events that BatchHandler gets. Default 100.
	MaxBatch int
	// TakeOver, if not nil, is called when a run has caught up, before ProjectionInfo.Run names it
	// as the run that readers use: for example to rename tables. It is not called for the first
	// run, which readers use from its first event on. It may be called more than once, and in
	// several processes concurrently. A call may come late, when a higher run has taken over: it
	// must not go back to the lower run. It is called again after an error. If the run falls behind
	// during the call, it is called again when the run has caught up.
	TakeOver func(ctx context.Context, run int64) error

	// Retry says how often and how soon an event is tried again when its handler failed. Default:
	// 15 attempts, which take one to two minutes, so that the projection survives a restart of its
	// database.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default Halt: its partition
	// halts there until ResumeProjection, because a read model that lacks an event is wrong from
	// there on.
	DeadLetter DeadLetter
	// SkipMissing skips events that retention or a deletion of records removed before they were
	// handled, and logs a warning. Default: the partition halts there (ErrEventsMissing), also if
	// its first events are missing when a run begins; that run does not take over while the
	// partition is halted.
	SkipMissing bool
	// Concurrency bounds how many calls of the handler run concurrently for each run in this
	// process: while a next run catches up, there may be twice as many. Default 0: one for each
	// partition.
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

// CommitTx is Event.CommitTx: it commits, within the handler's own transaction, that the event was
// handled.
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
	Behind     time.Duration // how old the first record is that is still to be handled, in the partition where it is oldest: this process's clock minus the record's Time, so a NewStreamEvent.Time in the past makes it larger; 0: all are handled
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
	return l.projections.Names(ctx)
}

// Projection describes a projection. It costs a few store calls, and one more for each partition
// that has events still to be handled.
func (l *Log) Projection(ctx context.Context, name string) (info ProjectionInfo, err error) {
	if err = l.usable(); err == nil {
		var below projection.Info
		below, err = l.projections.Describe(ctx, name)
		info = ProjectionInfo{Name: below.Name, Run: ProjectionRun(below.Run), Next: (*ProjectionRun)(below.Next), Paused: below.Paused}
	}
	return info, wrap(err, "describe projection %q", name)
}

// AwaitProjection waits until the projection has handled all events that a stream had at the time
// of the call, and those before them in the stream's partition. It waits for the run that readers
// use; and once the next run has caught up and takes over, for both runs. For a stream that never
// existed it returns immediately. *InvalidError if the projection does not read the category.
func (l *Log) AwaitProjection(ctx context.Context, name, category, stream string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "await projection %q", name)
	}
	return wrap(l.projections.Await(ctx, name, category, stream), "await projection %q of stream %q of category %q", name, stream, category)
}

// RebuildProjection begins a new run of a projection beside the run that readers use. The new run
// takes over when it has caught up. If there is a next run already, that run goes on, and no other
// begins.
func (l *Log) RebuildProjection(ctx context.Context, name string) error {
	return l.changeProjection(ctx, "rebuild", name, l.projections.Rebuild)
}

// PauseProjection stops a projection, in all processes within a second, until ResumeProjection. It
// does not wait for running calls of the handler.
func (l *Log) PauseProjection(ctx context.Context, name string) error {
	return l.changeProjection(ctx, "pause", name, l.projections.Pause)
}

// ResumeProjection ends a PauseProjection. A partition that halted at an event tries the event
// again.
func (l *Log) ResumeProjection(ctx context.Context, name string) error {
	return l.changeProjection(ctx, "resume", name, l.projections.Resume)
}

// DeleteProjection deletes a projection and its consumer groups: Project with that name then begins
// anew. The read models stay. Close its projectors in all processes first; otherwise it returns
// ErrGroupInUse and changes nothing. If a group cannot be deleted after the projection, this is
// logged. The group expires later; no later run uses its name.
func (l *Log) DeleteProjection(ctx context.Context, name string) error {
	return l.changeProjection(ctx, "delete", name, l.projections.Delete)
}

func (l *Log) changeProjection(ctx context.Context, verb, name string, change func(context.Context, string) error) error {
	err := l.usable()
	if err == nil {
		err = change(ctx, name)
	}
	return wrap(err, "%s projection %q", verb, name)
}

// Projector works on a projection's runs in this process.
type Projector struct {
	log *Log
	p   *projection.Projector
}

// Project starts to work on a projection, and creates it if there is none. A Version above those of
// all runs begins a new run beside the run that readers use. With an older Version the projector
// works only on runs of that Version, if there are any. *InvalidError if the categories differ from
// those of the same Version. ctx bounds only the start; the projector works until it or the Log is
// closed.
func (l *Log) Project(ctx context.Context, p Projection) (*Projector, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "project %q", p.Name)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("project: the projection is not complete: %w", err)
	}
	if p.DeadLetter == nil {
		p.DeadLetter = Halt
	}
	w := projection.Work{
		Name: p.Name, Version: p.Version, Categories: p.Categories, TakeOver: p.TakeOver, Poll: l.opts.Poll, Handle: l.projectionHandler(p),
		Consumer: deliver.Subscription{
			Retry: retry.Policy(p.Retry), DeadLetter: l.deadLetter(p.DeadLetter), Concurrency: p.Concurrency, CommitEvery: p.CommitEvery,
			Session: p.Session, Whole: !p.SkipMissing, MaxBatch: 1,
		},
	}
	if p.BatchHandler != nil {
		w.Consumer.MaxBatch = cmp.Or(p.MaxBatch, maxBatchDefault)
	}
	below, err := l.projections.Projector(ctx, l.delivery, w)
	if err != nil {
		return nil, wrap(err, "project %q", p.Name)
	}
	j := &Projector{log: l, p: below}
	if !l.begin(j, func() { below.Start(ctx) }) {
		return nil, fmt.Errorf("project %q: %w", p.Name, ErrClosed)
	}
	return j, nil
}

func (p *Projection) check() error {
	switch {
	case p.Name == "":
		return errors.New("it has no Name")
	case (p.Handler == nil) == (p.BatchHandler == nil):
		return errors.New("it needs a Handler or a BatchHandler, and not both")
	case p.MaxBatch < 0 || p.MaxBatch > 0 && p.BatchHandler == nil:
		return fmt.Errorf("its MaxBatch is %d: it must be 1 or more, and needs a BatchHandler", p.MaxBatch)
	case p.Version < 0:
		return fmt.Errorf("its Version is %d: it must be 0 or more", p.Version)
	case p.Concurrency < 0:
		return fmt.Errorf("its Concurrency is %d: it must be 0 or more", p.Concurrency)
	}
	return nil
}

// projectionHandler calls the projection's handlers.
func (l *Log) projectionHandler(p Projection) func(context.Context, int64, *deliver.Partition, []projection.Event) error {
	return func(ctx context.Context, run int64, from *deliver.Partition, events []projection.Event) error {
		projected := make([]ProjectedEvent, len(events))
		for i := range events {
			e := &events[i]
			projected[i] = ProjectedEvent{
				StreamEvent: streamEventOf(&e.Event), Category: from.Topic(), Run: run, Deleted: e.Deleted, Attempt: e.Record.Attempt, event: l.delivered(from, &e.Record),
			}
		}
		if p.Handler != nil {
			return p.Handler(ctx, projected[0])
		}
		return p.BatchHandler(ctx, projected)
	}
}

// Close ends the projector as Consumer.Close ends a consumer: running calls finish, and what they
// handled is committed. Other processes take over its partitions.
func (j *Projector) Close(ctx context.Context) error {
	j.log.forget(j)
	return j.p.Close(ctx)
}

// Halted returns the partitions that have halted at an event in this process, and why.
func (j *Projector) Halted() map[TopicPartition]error {
	halted := make(map[TopicPartition]error)
	for _, list := range j.Assigned() {
		for _, a := range list {
			if a.Halted != nil {
				halted[a.TopicPartition] = a.Halted
			}
		}
	}
	return halted
}

// Assigned lists, for each run by its number, the partitions that this process works on now.
func (j *Projector) Assigned() map[int64][]Assigned {
	out := make(map[int64][]Assigned)
	for run, list := range j.p.Assigned() {
		out[run] = assigned(list)
	}
	return out
}

// ProcessManager reacts to events of streams with events for other streams: an order that was paid
// has its parcel sent, a transfer that was begun debits one account and credits the other. Name,
// Categories and React are required.
//
// What React returns is appended in the same change of the log that commits the event as handled.
// So for each event it is appended exactly once, whatever fails: a process, the store, an answer
// that got lost. React itself may be called more than once for an event, and must have no other
// effects.
type ProcessManager struct {
	// Name is the consumer group of the process manager. All processes that run one of that name
	// share the partitions.
	Name string
	// Categories are the names of the categories whose events it gets. They must exist.
	Categories []string
	// React returns what to append to streams because of an event; nothing: the event is handled.
	// Calls for one stream come one after the other, in the order of its events; calls for streams
	// in different partitions run concurrently. If a stream is not at the version that a part
	// expects, or React fails, React is called again, as Retry says: so let React read the streams
	// that its decision depends on, and expect the versions that it read.
	React func(ctx context.Context, e CategoryEvent) ([]StreamPart, error)

	// Start is where the process manager begins if it has never run. Default: the first event.
	Start Position
	// Retry says how often and how soon an event is tried again. Default: 15 attempts, which take
	// one to two minutes.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default Halt: its partition
	// halts there until Consumer.Resume.
	DeadLetter DeadLetter
	// Concurrency bounds how many calls of React run concurrently in this process. Default 0: one
	// for each partition.
	Concurrency int
	// CommitEvery and Session are as in Subscription.
	CommitEvery, Session time.Duration
}

// CategoryEvent is an event that a process manager gets.
type CategoryEvent struct {
	StreamEvent
	Category string
	Deleted  bool // this is no event of the stream: it says that the stream was deleted. Version and Data mean nothing then
	Attempt  int  // how often this process has delivered it, from 1
}

// Manage runs a process manager until the returned Consumer or the Log is closed. Call it in as
// many processes as you like.
func (l *Log) Manage(ctx context.Context, m ProcessManager) (*Consumer, error) {
	if m.React == nil {
		return nil, errors.New("manage: the process manager has no React")
	}
	if m.DeadLetter == nil {
		m.DeadLetter = Halt
	}
	decoder := l.streams.Decoder()
	if err := l.usable(); err != nil {
		return nil, wrap(err, "manage %q", m.Name)
	}
	c, err := l.consume(ctx, deliver.Subscription{
		Group: m.Name, Topics: m.Categories, Start: m.Start.at, Retry: retry.Policy(m.Retry), DeadLetter: l.deadLetter(m.DeadLetter),
		Concurrency: m.Concurrency, CommitEvery: m.CommitEvery, Session: m.Session, Whole: m.Start == Earliest,
		React: func(ctx context.Context, from *deliver.Partition, e deliver.Event) (deliver.Reaction, error) {
			found, _, err := decoder.Events(ctx, from.Topic(), from.TopicID(), e.Record)
			if err != nil || len(found) == 0 {
				return nil, err
			}
			parts, err := m.React(ctx, CategoryEvent{StreamEvent: streamEventOf(&found[0]), Category: from.Topic(), Deleted: found[0].Type == stream.TypeDeleted, Attempt: e.Attempt})
			if err != nil || len(parts) == 0 {
				return nil, err
			}
			return l.streams.Reaction(partsOf(parts)...)
		},
	})
	return c, wrap(err, "manage %q", m.Name)
}
