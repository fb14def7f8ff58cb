package projection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/closing"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/stream"
)

// projectorPoll is how often a projector looks for changes that other processes made to its
// projection.
const projectorPoll = time.Second

// Work is what a Projector does in this process.
type Work struct {
	Name       string   // the projection's name
	Version    int      // the handler's version, 0 or more; the projector works only on runs of this version
	Categories []string // the categories to read; empty: all
	// Handle handles events of one partition for a run, as Subscription.Handle does. The index in
	// an error of retry.FailedAt is an index in events.
	Handle func(ctx context.Context, run int64, from *deliver.Partition, events []Event) error
	// TakeOver, if not nil, is called when a run has caught up, before readers use that run. It may
	// be called more than once, and in several processes concurrently.
	TakeOver func(ctx context.Context, run int64) error
	// Consumer has the consumer's settings: MaxBatch, Whole, Retry, DeadLetter, Concurrency,
	// CommitEvery, Session.
	Consumer deliver.Subscription
	// Poll is how often changes that other processes made to the projection are looked for.
	// Default, and at most: 1 s.
	Poll time.Duration
}

// Event is an event of a stream for a projection.
type Event struct {
	stream.Event
	Deleted bool          // it is no event of the stream: it says that the stream was deleted
	Record  deliver.Event // the event's record
}

// Projector works on a projection's runs in this process.
type Projector struct {
	ps       *Projections
	delivery *deliver.Delivery
	opts     Work
	wake     chan struct{} // receives when the projection may have changed

	stop  context.CancelFunc
	ended chan struct{} // closed when work has ended

	// Owned by work.
	resumed int64
	paused  bool
	goal    goal
	seen    []string // the groups of all runs seen; the group of a run that has ended is deleted

	mu   sync.Mutex // guards runs
	runs map[int64]*projectorRun
}

// projectorRun is the consumer of one run.
type projectorRun struct {
	categories []string
	consumer   *deliver.Consumer
}

// Projector makes a projector, and creates the projection if there is none. A Version above those
// of all runs begins a new run beside the run that readers use. With an older Version the projector
// works only on runs of that Version, if there are any. *eventlog.InvalidError if the categories
// differ from those of the same Version. It does nothing before Start.
func (ps *Projections) Projector(ctx context.Context, d *deliver.Delivery, w Work) (*Projector, error) {
	w.Categories = slices.Clone(w.Categories)
	slices.Sort(w.Categories)
	w.Categories = slices.Compact(w.Categories)
	for _, category := range w.Categories {
		if _, err := ps.streams.Category(ctx, category); err != nil {
			return nil, err
		}
	}
	known, err := ps.streams.EnsureProjection(ctx, w.Name, w.Version, w.Categories)
	if err != nil {
		return nil, err
	}
	if known.Run.Version > w.Version && known.Next == nil {
		ps.logger.Warn("this program has an older version of a projection than the one that readers use; it has nothing to do", "projection", w.Name, "version", w.Version, "used", known.Run.Version)
	}
	return &Projector{
		ps: ps, delivery: d, opts: w, wake: make(chan struct{}, 1), ended: make(chan struct{}),
		resumed: known.Resumed, runs: make(map[int64]*projectorRun),
	}, nil
}

// Start starts the work, until Close; the end of ctx means nothing, but handlers get its values.
// Call it once.
func (j *Projector) Start(ctx context.Context) {
	var work context.Context
	work, j.stop = context.WithCancel(context.WithoutCancel(ctx))
	j.ps.mu.Lock()
	j.ps.projectors[j] = struct{}{}
	j.ps.mu.Unlock()
	go j.work(work)
}

// Close ends the projector as Consumer.Close ends a consumer: running calls finish, and what they
// handled is committed. Other processes take over its partitions.
func (j *Projector) Close(ctx context.Context) error {
	j.ps.mu.Lock()
	delete(j.ps.projectors, j)
	j.ps.mu.Unlock()
	j.stop()
	consumers := j.consumers() // begin adds none after stop
	closed := make(chan error, 1)
	go func() { closed <- closing.All(ctx, consumers) }()
	var late error
	select {
	case <-j.ended:
	case <-ctx.Done():
		late = fmt.Errorf("its TakeOver has not returned, or the store has not answered yet: %w", context.Cause(ctx))
	}
	if err := errors.Join(late, <-closed); err != nil {
		return fmt.Errorf("close the projector of %q: %w", j.opts.Name, err)
	}
	return nil
}

func (j *Projector) consumers() (list []*deliver.Consumer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.runs {
		list = append(list, r.consumer)
	}
	return list
}

// Assigned lists, for each run by its number, the partitions that this process works on now.
func (j *Projector) Assigned() map[int64][]deliver.Assigned {
	assigned := make(map[int64][]deliver.Assigned)
	j.mu.Lock()
	defer j.mu.Unlock()
	for number, r := range j.runs {
		assigned[number] = r.consumer.Assigned()
	}
	return assigned
}

// tell wakes the projectors of a projection in this process.
func (ps *Projections) tell(name string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for j := range ps.projectors {
		if j.opts.Name == name {
			j.poke()
		}
	}
}

func (j *Projector) poke() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// work calls follow again and again until ctx ends.
func (j *Projector) work(ctx context.Context) {
	defer close(j.ended)
	tick := time.NewTicker(min(projectorPoll, cmp.Or(j.opts.Poll, projectorPoll)))
	defer tick.Stop()
	troubled := false
	for {
		err := j.follow(ctx)
		if err != nil && ctx.Err() == nil && !troubled {
			j.ps.logger.Warn("a projection cannot continue; trying again", "projection", j.opts.Name, "err", err)
		}
		troubled = err != nil
		select {
		case <-ctx.Done():
			return
		case <-j.wake:
		case <-tick.C:
		}
	}
}

// follow begins, ends and pauses consumers as the projection in the store says. If the next run has
// caught up, it takes over.
func (j *Projector) follow(ctx context.Context) error {
	p, err := j.ps.streams.Projection(ctx, j.opts.Name)
	if errors.Is(err, stream.ErrUnknownProjection) {
		return errors.Join(err, j.endRuns(ctx, nil))
	}
	if err != nil {
		return err
	}
	wanted := make(map[int64]stream.Run) // the runs of this version, with the categories that exist now
	for _, run := range p.Runs() {
		if run.Version != j.opts.Version {
			continue
		}
		if run.Categories, err = j.ps.categories(ctx, run); err != nil {
			return err
		}
		wanted[run.Number] = run
	}
	err = j.endRuns(ctx, func(number int64, r *projectorRun) bool {
		run, is := wanted[number]
		return is && slices.Equal(r.categories, run.Categories)
	})
	if err != nil {
		return err
	}
	j.obey(p)
	for _, run := range wanted {
		if err := j.begin(ctx, p.Paused, run); err != nil {
			return err
		}
	}
	if p.Next != nil && p.Next.Version == j.opts.Version && !p.Paused {
		if err := j.takeOver(ctx, p); err != nil {
			return err
		}
	}
	return j.deleteGroups(ctx, p)
}

// obey pauses or resumes the consumers if the projection was paused or resumed.
func (j *Projector) obey(p stream.Projection) {
	again := p.Resumed != j.resumed
	if !again && p.Paused == j.paused {
		return
	}
	j.resumed, j.paused = p.Resumed, p.Paused
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.runs {
		if p.Paused {
			r.consumer.Pause()
		} else {
			r.consumer.Resume()
		}
	}
}

// begin begins to work on a run, unless it has begun already or has no categories.
func (j *Projector) begin(ctx context.Context, paused bool, run stream.Run) error {
	j.mu.Lock()
	_, runs := j.runs[run.Number]
	j.mu.Unlock()
	if runs || len(run.Categories) == 0 {
		return nil
	}
	decoder := j.ps.streams.Decoder()
	sub := j.opts.Consumer
	sub.Group, sub.Topics, sub.Paused = run.Group, run.Categories, paused
	sub.Handle = func(ctx context.Context, from *deliver.Partition, events []deliver.Event) error {
		return j.handle(ctx, run.Number, decoder, from, events)
	}
	c, err := j.delivery.Join(ctx, sub)
	if err != nil {
		return err
	}
	j.mu.Lock()
	ended := ctx.Err() != nil // Close may not wait for us any more, and closes only the consumers that are in runs by now
	if !ended {
		j.runs[run.Number] = &projectorRun{categories: run.Categories, consumer: c}
		c.Start(ctx)
	}
	j.mu.Unlock()
	if ended {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endRunTime)
		defer cancel()
		return c.Leave(ctx)
	}
	return nil
}

// handle passes events of one topic on to the projection's handler.
func (j *Projector) handle(ctx context.Context, run int64, decoder *stream.Decoder, from *deliver.Partition, events []deliver.Event) error {
	records := make([]batch.Record, len(events))
	for i := range events {
		records[i] = events[i].Record
	}
	found, place, err := decoder.Events(ctx, from.Topic(), from.TopicID(), records...)
	if err != nil || len(found) == 0 {
		return err
	}
	projected := make([]Event, len(found))
	for i, e := range found {
		projected[i] = Event{Event: e, Deleted: e.Type == stream.TypeDeleted, Record: events[place[i]]}
	}
	err = j.opts.Handle(ctx, run, from, projected)
	if failed, named := retry.FailedIndex(err, len(projected)); named {
		return retry.FailedAt(place[failed], err) // the handler's index counts only the events in projected
	}
	return err
}

// endRuns ends the work on all runs for which keep returns false; if keep is nil, on all runs.
func (j *Projector) endRuns(ctx context.Context, keep func(number int64, r *projectorRun) bool) error {
	j.mu.Lock()
	var end []*projectorRun
	for number, r := range j.runs {
		if keep == nil || !keep(number, r) {
			end = append(end, r)
			delete(j.runs, number)
		}
	}
	j.mu.Unlock()
	var errs []error
	for _, r := range end {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endRunTime)
		errs = append(errs, r.consumer.Close(ctx))
		cancel()
	}
	return errors.Join(errs...)
}

// endRunTime is how long running handlers may take to return when the work on a run ends.
const endRunTime = 10 * time.Second

// deleteGroups deletes the groups of runs that have ended, as soon as the groups have no members.
// If all processes end before that, the group expires, as every unused group does.
func (j *Projector) deleteGroups(ctx context.Context, p stream.Projection) error {
	var made []string
	for _, run := range p.Runs() {
		made = append(made, run.Group)
		if !slices.Contains(j.seen, run.Group) {
			j.seen = append(j.seen, run.Group)
		}
	}
	var failed error
	j.seen = slices.DeleteFunc(j.seen, func(name string) bool {
		if slices.Contains(made, name) || failed != nil {
			return false
		}
		err := j.ps.groups.Delete(ctx, name)
		if err != nil && !errors.Is(err, group.ErrNotFound) && !errors.Is(err, group.ErrNotEmpty) {
			failed = err
		}
		return err == nil || errors.Is(err, group.ErrNotFound)
	})
	return failed
}
