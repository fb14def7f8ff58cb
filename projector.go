package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/projection"
	"github.com/weir-log/weir/use/stream"
)

const (
	// projectorPoll is how often a projector looks for changes that other processes made to its
	// projection.
	projectorPoll = time.Second
	// caughtUpWithin is the highest age of a goal. After that a new goal is read from the store.
	caughtUpWithin = 2 * time.Second
)

// Projector works on a projection's runs in this process.
type Projector struct {
	log  *Log
	p    Projection
	wake chan struct{} // receives when the projection may have changed

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
	consumer   *Consumer
}

// goal is what a run has to reach to take over: the ends of its partitions, read at the time set.
type goal struct {
	run  int64
	set  time.Time
	ends map[eventlog.Partition]eventlog.Offset
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
	p, err := p.checked()
	if err != nil {
		return nil, fmt.Errorf("project: the projection is not complete: %w", err)
	}
	for _, category := range p.Categories {
		if _, err := l.streams.Category(ctx, category); err != nil {
			return nil, wrap(err, "project %q", p.Name)
		}
	}
	known, err := l.streams.EnsureProjection(ctx, p.Name, p.Version, p.Categories)
	if err != nil {
		return nil, wrap(err, "project %q", p.Name)
	}
	if known.Run.Version > p.Version && known.Next == nil {
		l.logger.Warn("this program has an older version of a projection than the one that readers use; it has nothing to do", "projection", p.Name, "version", p.Version, "used", known.Run.Version)
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	j := &Projector{
		log: l, p: p, wake: make(chan struct{}, 1), stop: stop, ended: make(chan struct{}),
		resumed: known.Resumed, runs: make(map[int64]*projectorRun),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		stop()
		return nil, fmt.Errorf("project %q: %w", p.Name, ErrClosed)
	}
	l.projectors[j] = struct{}{}
	go j.work(work)
	return j, nil
}

// checked returns the projection with its defaults, or an error that says what is wrong with it.
func (p Projection) checked() (Projection, error) {
	if p.DeadLetter == nil {
		p.DeadLetter = Halt
	}
	p.Categories = slices.Clone(p.Categories)
	slices.Sort(p.Categories)
	p.Categories = slices.Compact(p.Categories)
	switch {
	case p.Name == "":
		return p, errors.New("it has no Name")
	case (p.Handler == nil) == (p.BatchHandler == nil):
		return p, errors.New("it needs a Handler or a BatchHandler, and not both")
	case p.MaxBatch < 0 || p.MaxBatch > 0 && p.BatchHandler == nil:
		return p, fmt.Errorf("its MaxBatch is %d: it must be 1 or more, and needs a BatchHandler", p.MaxBatch)
	case p.Version < 0:
		return p, fmt.Errorf("its Version is %d: it must be 0 or more", p.Version)
	case p.Concurrency < 0:
		return p, fmt.Errorf("its Concurrency is %d: it must be 0 or more", p.Concurrency)
	}
	return p, nil
}

// Close ends the projector in order, as Consumer.Close does. Other processes take over its
// partitions.
func (j *Projector) Close(ctx context.Context) error {
	j.log.mu.Lock()
	delete(j.log.projectors, j)
	j.log.mu.Unlock()
	j.stop()
	var late error
	select {
	case <-j.ended:
	case <-ctx.Done():
		late = fmt.Errorf("its TakeOver has not returned, or the store has not answered yet: %w", context.Cause(ctx))
	}
	j.mu.Lock()
	var consumers []closer
	for _, r := range j.runs {
		consumers = append(consumers, r.consumer)
	}
	j.mu.Unlock()
	return wrap(errors.Join(late, closeAll(ctx, consumers)), "close the projector of %q", j.p.Name)
}

// Halted returns the partitions that have halted at an event in this process, and why.
func (j *Projector) Halted() map[TopicPartition]error {
	halted := make(map[TopicPartition]error)
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.runs {
		for _, a := range r.consumer.Assigned() {
			if a.Halted != nil {
				halted[a.TopicPartition] = a.Halted
			}
		}
	}
	return halted
}

// Assigned lists, for each run by its number, the partitions that this process works on now.
func (j *Projector) Assigned() map[int64][]Assigned {
	assigned := make(map[int64][]Assigned)
	j.mu.Lock()
	defer j.mu.Unlock()
	for number, r := range j.runs {
		assigned[number] = r.consumer.Assigned()
	}
	return assigned
}

// tellProjectors wakes the projectors of a projection in this process.
func (l *Log) tellProjectors(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for j := range l.projectors {
		if j.p.Name == name {
			poke(j.wake)
		}
	}
}

// work calls follow again and again until ctx ends.
func (j *Projector) work(ctx context.Context) {
	defer close(j.ended)
	poll := projectorPoll
	if j.log.opts.Poll > 0 {
		poll = min(poll, j.log.opts.Poll)
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	troubled := false
	for {
		err := j.follow(ctx)
		if err != nil && ctx.Err() == nil && !troubled {
			j.log.logger.Warn("a projection cannot continue; trying again", "projection", j.p.Name, "err", err)
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
	p, err := j.log.streams.Projection(ctx, j.p.Name)
	if errors.Is(err, ErrUnknownProjection) {
		return errors.Join(err, j.endRuns(ctx, nil))
	}
	if err != nil {
		return err
	}
	wanted := make(map[int64]stream.Run) // the runs of this version, with the categories that exist now
	for _, run := range p.Runs() {
		if run.Version != j.p.Version {
			continue
		}
		if run.Categories, err = j.log.projections.Categories(ctx, run); err != nil {
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
	if p.Next != nil && p.Next.Version == j.p.Version && !p.Paused {
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
	of := &categoriesRead{log: j.log, byName: make(map[string]*stream.Category)}
	sub := Subscription{
		Group: run.Group, Topics: run.Categories, Retry: j.p.Retry, DeadLetter: j.p.DeadLetter,
		Concurrency: j.p.Concurrency, CommitEvery: j.p.CommitEvery, Session: j.p.Session, MaxBatch: j.p.MaxBatch, whole: !j.p.SkipMissing,
	}
	if j.p.BatchHandler != nil {
		sub.BatchHandler = func(ctx context.Context, events []Event) error {
			return j.handle(ctx, run.Number, of, events...)
		}
	} else {
		sub.Handler = func(ctx context.Context, e Event) error { return j.handle(ctx, run.Number, of, e) }
	}
	c, err := j.log.consume(ctx, sub, paused)
	if err != nil {
		return err
	}
	j.mu.Lock()
	ended := ctx.Err() != nil // Close may not wait for us any more, and closes only the consumers that are in runs by now
	if !ended {
		j.runs[run.Number] = &projectorRun{categories: run.Categories, consumer: c}
	}
	j.mu.Unlock()
	if ended {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endRunTime)
		defer cancel()
		return c.Close(ctx)
	}
	return nil
}

// categoriesRead caches the categories whose events a run gets. A category that was deleted and
// created again is a different one, and takes the place of the earlier one.
type categoriesRead struct {
	log    *Log
	mu     sync.Mutex // guards byName
	byName map[string]*stream.Category
}

func (r *categoriesRead) of(ctx context.Context, e Event) (*stream.Category, error) {
	id := e.from.key.Topic
	r.mu.Lock()
	c := r.byName[e.Topic]
	r.mu.Unlock()
	if c != nil && c.ID() == id {
		return c, nil
	}
	c, err := r.log.streams.Category(ctx, e.Topic)
	if err != nil {
		return nil, err
	}
	if c.ID() != id {
		return nil, fmt.Errorf("%w: %q was deleted and created again", ErrUnknownCategory, e.Topic)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.byName[e.Topic] = c
	return c, nil
}

// recordOf returns an event as a record of its category's topic.
func recordOf(e Event) batch.Record {
	r := batch.Record{Key: e.Key, Value: e.Value, Headers: e.Headers, Timestamp: batch.NoTimestamp}
	if !e.Time.IsZero() {
		r.Timestamp = e.Time.UnixMilli()
	}
	return r
}

// handle passes events of one topic on to the projection's handler.
func (j *Projector) handle(ctx context.Context, run int64, of *categoriesRead, events ...Event) error {
	c, err := of.of(ctx, events[0])
	if err != nil {
		return err
	}
	records := make([]batch.Record, len(events))
	for i, e := range events {
		records[i] = recordOf(e)
	}
	found, place, err := c.EventsIn(ctx, records...)
	if err != nil || len(found) == 0 {
		return err
	}
	projected := make([]ProjectedEvent, len(found))
	for i, e := range found {
		from := events[place[i]]
		projected[i] = ProjectedEvent{
			StreamEvent: e, Category: from.Topic, Run: run, Deleted: e.Type == stream.TypeDeleted, Attempt: from.Attempt, event: from,
		}
	}
	if j.p.Handler != nil {
		return j.p.Handler(ctx, projected[0])
	}
	err = j.p.BatchHandler(ctx, projected)
	if failed, named := failedIndex(err, len(projected)); named {
		return FailedAt(place[failed], err) // the handler's index counts only the events in projected
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

// takeOver lets the next run take over if it has reached a recent goal and has handled all that the
// current run has handled.
func (j *Projector) takeOver(ctx context.Context, p stream.Projection) error {
	places, err := j.log.projections.Places(ctx, *p.Next)
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
	// From here on AwaitProjection waits for both runs. Earlier calls waited only for the current
	// run, so the next run must catch up with it again.
	if _, err := j.log.streams.AnnounceTakeOver(ctx, p.Name, p.Next.Number); err != nil {
		return err
	}
	if caughtUp, err = j.caughtUp(ctx, p, places); err != nil || !caughtUp {
		return err
	}
	if j.p.TakeOver != nil {
		if err := recovered.Do(func() error { return j.p.TakeOver(ctx, p.Next.Number) }); err != nil {
			return fmt.Errorf("run %d has caught up and cannot take over: %w", p.Next.Number, err)
		}
		// TakeOver may have taken long, and the current run may have handled more events.
		if caughtUp, err = j.caughtUp(ctx, p, places); err != nil || !caughtUp {
			return err
		}
	}
	if _, err := j.log.streams.TakeOver(ctx, p.Name, p.Next.Number); err != nil {
		return err
	}
	j.log.logger.Info("a run of a projection has taken over", "projection", p.Name, "run", p.Next.Number, "version", p.Next.Version)
	poke(j.wake) // to end the older run
	return nil
}

// caughtUp reports whether the next run has reached the goal and has handled all that the current
// run has handled.
func (j *Projector) caughtUp(ctx context.Context, p stream.Projection, places []projection.Place) (bool, error) {
	present, err := j.log.projections.HandledTo(ctx, p.Run.Group, places)
	if err != nil {
		return false, err
	}
	next, err := j.log.projections.HandledTo(ctx, p.Next.Group, places)
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

func (j *Projector) newGoal(ctx context.Context, p stream.Projection, places []projection.Place, now time.Time) (goal, error) {
	g := goal{run: p.Next.Number, set: now, ends: make(map[eventlog.Partition]eventlog.Offset, len(places))}
	if len(places) == 0 {
		return g, nil
	}
	bounds, err := j.log.projections.Bounds(ctx, places)
	if err != nil {
		return goal{}, err
	}
	for i, b := range bounds {
		if b.Bounds.Next > b.Bounds.First {
			g.ends[places[i].ID] = b.Bounds.Next
		}
	}
	return g, nil
}

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
		err := j.log.groups.Delete(ctx, name)
		if err != nil && !errors.Is(err, ErrUnknownGroup) && !errors.Is(err, ErrGroupInUse) {
			failed = err
		}
		return err == nil || errors.Is(err, ErrUnknownGroup)
	})
	return failed
}
