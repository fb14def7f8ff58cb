package queue

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/publish"
)

// Config sets Queues up. The zero value of every field means its default.
type Config struct {
	Logger *slog.Logger    // default: slog.Default()
	Tracer eventlog.Tracer // default: no spans
	Beside Beside          // default: no SQL transaction enqueues or acknowledges messages
}

const (
	// loadTimeout bounds the wait for the store when a state is read.
	loadTimeout = 10 * time.Second
	// refreshEvery is how often a waiting worker checks whether other processes gave messages back.
	refreshEvery = time.Second
)

// Queues are the queues of a log. Methods may be called concurrently. Claims and answers (acks,
// nacks, extensions) need Run to be running.
type Queues struct {
	log       *eventlog.Log
	publisher *publish.Publisher
	logger    *slog.Logger
	tracer    eventlog.Tracer
	beside    Beside // nil: none
	clock     *claims.Clock
	records   *records
	wheel     *wheel
	delayed   *delayed
	ages      ages
	searches  search // what one Find may read
	scheduler *scheduler
	process   string // the writer ids of this process begin with it
	written   atomic.Int64
	holding   chan struct{} // has a value for each operation that holds records of answers, holdingMax at most

	mu      sync.Mutex // guards what follows
	opened  map[string]*Queue
	heard   int                       // how often this process heard that a queue was changed
	deleted map[eventlog.TopicID]bool // topics of queues that were found deleted; ids are never reused
	ctx     context.Context           // the context of Run; nil before and after it
	begun   chan struct{}             // closed when Run has begun
	uses    chan struct{}             // closed when the first queue is opened
	workers sync.WaitGroup
}

// New returns the queues of a log. Messages are enqueued with the publisher, which must have the
// default partitioner: messages that come back to a queue go where that one says.
func New(log *eventlog.Log, publisher *publish.Publisher, cfg Config) *Queues {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	qs := &Queues{
		log: log, publisher: publisher, logger: cfg.Logger, tracer: eventlog.Traced(cfg.Tracer), beside: cfg.Beside, clock: claims.NewClock(log),
		process: strconv.FormatUint(uint64(chance.Uint32()), 16), opened: make(map[string]*Queue), deleted: make(map[eventlog.TopicID]bool), begun: make(chan struct{}), uses: make(chan struct{}),
		holding: make(chan struct{}, holdingMax),
	}
	qs.records = newRecords(log, qs.start)
	qs.searches = search{bytes: searchBytes, records: searchRecords}
	qs.wheel, qs.delayed, qs.scheduler = newWheel(qs), newDelayed(qs), newScheduler(qs)
	return qs
}

// Run serves claims and answers until ctx ends, then waits for the changes in flight. Claims and
// answers that come before Run wait for it. Call it once. With a log that is read-only, queues can
// be looked at, and nothing is done for them.
func (qs *Queues) Run(ctx context.Context) error {
	qs.mu.Lock()
	qs.ctx = ctx
	qs.mu.Unlock()
	close(qs.begun)
	qs.start(qs.followStore)
	qs.start(qs.followDefinitions)
	if !qs.log.ReadOnly() {
		qs.start(qs.wheel.run)
		qs.start(qs.delayed.run)
		qs.start(qs.forgetAllGone)
		qs.start(qs.keepOwning)
		qs.start(qs.retain)
		qs.start(qs.scheduler.run)
	}
	<-ctx.Done()
	qs.mu.Lock()
	qs.ctx = nil
	qs.mu.Unlock()
	qs.workers.Wait()
	return nil
}

// running waits until Run has begun.
func (qs *Queues) running(ctx context.Context) error {
	select {
	case <-qs.begun:
		return nil
	default:
	}
	select {
	case <-qs.begun:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: this process is starting (%w)", eventlog.ErrUnavailable, context.Cause(ctx))
	}
}

// followStore waits until the store may have been rewound. Then it drops all cached states, and
// marks all definitions to be read again.
func (qs *Queues) followStore(ctx context.Context) {
	for changed := qs.log.IncarnationChanged(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = qs.log.IncarnationChanged() // before the rest: the store may be rewound again meanwhile
		qs.clock.Forget()
		qs.mu.Lock()
		clear(qs.deleted)
		opened := slices.Collect(maps.Values(qs.opened))
		qs.mu.Unlock()
		for _, q := range opened {
			q.mu.Lock()
			clear(q.shards) // a shard with a change in flight notices by itself: the change checks its version
			clear(q.dead)
			q.lastRefresh = time.Time{}
			q.rewound = true
			q.heard++ // a definition that is being read now is read again
			q.mu.Unlock()
			q.hear()
		}
	}
}

// start runs work in a goroutine that Run waits for, with the context of Run; false when Run is not
// running.
func (qs *Queues) start(work func(context.Context)) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.ctx == nil || qs.ctx.Err() != nil {
		return false
	}
	ctx := qs.ctx
	qs.workers.Go(func() { work(ctx) })
	return true
}

// newWriterID returns an id for one change of this process.
func (qs *Queues) newWriterID() string {
	return qs.process + "-" + strconv.FormatInt(qs.written.Add(1), 10)
}

// Open finds a queue. It costs one store call if this process has not opened the queue yet, or if
// it heard that the queue was changed.
func (qs *Queues) Open(ctx context.Context, name string) (*Queue, error) {
	qs.mu.Lock()
	q := qs.opened[name]
	qs.mu.Unlock()
	if q != nil {
		if err := q.update(ctx); !errors.Is(err, ErrUnknownQueue) {
			return q, err
		}
	}
	for {
		heard := qs.news()
		d, err := qs.read(ctx, name)
		if err != nil {
			return nil, err
		}
		if q := qs.adopt(d, heard); q != nil {
			return q, nil
		}
	}
}

// news returns how often this process has heard that any queue was changed.
func (qs *Queues) news() int {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.heard
}

// openAs is Open, but reads the store again if the known queue has another id: another process may
// have purged it, or deleted and created it again.
func (qs *Queues) openAs(ctx context.Context, name, id string) (*Queue, error) {
	q, err := qs.Open(ctx, name)
	if err == nil && q.id != id {
		qs.dropOpened(q)
		q, err = qs.Open(ctx, name)
	}
	return q, err
}

// With opens a queue and calls do with it. If do returns ErrUnknownQueue, it opens the queue again
// and calls do once more: another process may have purged it.
func (qs *Queues) With(ctx context.Context, name string, do func(*Queue) error) error {
	for tries := 1; ; tries++ {
		q, err := qs.Open(ctx, name)
		if err != nil {
			return err
		}
		if err = do(q); tries == 2 || !errors.Is(err, ErrUnknownQueue) {
			return err
		}
		qs.dropOpened(q)
	}
}

// adopt returns the queue of a definition that was read. nil: since news returned heard, some queue
// was changed, maybe this one.
func (qs *Queues) adopt(d definition, heard int) *Queue {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.heard != heard {
		return nil
	}
	if q := qs.opened[d.name]; q != nil && q.id == d.id {
		return q
	}
	q := &Queue{
		owner: qs, log: qs.log, name: d.name, id: d.id,
		shards: make(map[string]*shard), dead: make(map[eventlog.Partition]*shard), keys: make(map[eventlog.Partition]*keyReader), burying: make(map[eventlog.Partition]bool), outdated: make(chan struct{}), records: qs.records,
		filling: make(chan struct{}, 1),
	}
	q.def.Store(&d)
	qs.opened[d.name] = q
	if !isClosed(qs.uses) {
		close(qs.uses)
	}
	return q
}

// Queue is one queue. Methods may be called concurrently.
type Queue struct {
	owner   *Queues
	log     *eventlog.Log
	name    string
	id      string
	def     atomic.Pointer[definition]
	records *records
	turn    atomic.Uint64 // counts claims: it decides which level and partition is asked first
	waiting claims.Line
	filling chan struct{} // has a value while a claim reads states; other claims wait, because they would read the same ones

	mu          sync.Mutex                        // guards what follows
	shards      map[string]*shard                 // by key
	dead        map[eventlog.Partition]*shard     // by partition of the dead-letter topic
	keys        map[eventlog.Partition]*keyReader // by partition, for a queue that keeps order by key
	heard       int                               // how often this process heard that the definition was changed
	rewound     bool                              // the store was rewound, and may have lost the known definition
	outdated    chan struct{}                     // closed when the definition is changed; redefine replaces the channel
	waiters     int                               // waiting claims; while there are any, watch runs
	unwatch     context.CancelFunc
	lastRefresh time.Time                   // when the states of all shards were last read
	burying     map[eventlog.Partition]bool // partitions whose messages without attempts left are becoming dead letters now
}

// Info describes the queue as this process knows it.
func (q *Queue) Info() Info { return q.def.Load().info() }

// Now describes the queue as the store has it: one store call. ErrUnknownQueue if it was deleted or
// purged, even if a queue has its name now.
func (q *Queue) Now(ctx context.Context) (Info, error) {
	if err := q.redefine(ctx); err != nil {
		return Info{}, err
	}
	return q.Info(), nil
}

func (qs *Queues) dropOpened(q *Queue) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.opened[q.name] == q {
		delete(qs.opened, q.name)
	}
}

// shard returns the shard that holds a partition's state, under the queue's present settings.
func (q *Queue) shard(p eventlog.Partition) *shard {
	return q.shardOf(q.def.Load().keyOf(p))
}

// decides reports whether a key is used under the queue's present settings. The keys of dead
// letters always are.
func (q *Queue) decides(key string) bool {
	rest, of := strings.CutPrefix(key, statesOf(q.id))
	return !of || (rest == sharedShard) == q.def.Load().settings.limited()
}

// change runs an operation on the shard that holds a partition's state.
func (q *Queue) change(ctx context.Context, p eventlog.Partition, o *op) error {
	for {
		err := q.shard(p).do(ctx, o)
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

func (q *Queue) shardOf(key string) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shards[key]
	if s == nil {
		s = newShard(q.owner, q, fmt.Sprintf("queue %q", q.name), key)
		q.shards[key] = s
	}
	return s
}

// wakeClaims wakes the claim that has waited longest: there may be a message for it.
func (q *Queue) wakeClaims() { q.waiting.Wake(1) }

// wait counts a waiting claim until done is called. While there is one, watch runs and waits for
// new messages.
func (q *Queue) wait() (done func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters++
	if q.waiters == 1 {
		ctx, unwatch := context.WithCancel(context.Background())
		q.unwatch = unwatch
		if !q.owner.start(func(run context.Context) {
			defer context.AfterFunc(run, unwatch)()
			q.watch(ctx)
		}) {
			unwatch()
		}
	}
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.waiters--; q.waiters == 0 {
			q.unwatch()
		}
	}
}

// watch wakes a claim when new messages come. It costs no store call while the queue's definition
// is unchanged.
func (q *Queue) watch(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		changed := q.outdates()
		err := q.update(ctx)
		var levels []eventlog.Topic
		if err == nil {
			levels, err = q.levels(ctx)
		}
		if err != nil {
			q.wakeClaims() // a claim gets the same error
			failures++
			eventlog.Pause(ctx, failures)
			continue
		}
		var spans []eventlog.Span
		for _, t := range levels {
			for _, p := range t.Partitions {
				b, _ := q.log.Known(p)
				spans = append(spans, eventlog.Span{Partition: p, From: b.Next, MaxBytes: 1})
			}
		}
		q.wakeClaims() // for messages before these spans; Fetch waits for those after
		_, err = q.log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: 1, MaxWait: time.Minute, Stop: changed})
		if err != nil {
			failures++
			eventlog.Pause(ctx, failures)
			continue
		}
		failures = 0
	}
}

// refreshStates reads the states of all the queue's partitions, at most once in refreshEvery, and
// reports whether it did: one store call per thousand partitions, or per 4 MiB of states.
func (q *Queue) refreshStates(ctx context.Context) (looked bool, err error) {
	q.mu.Lock()
	due := time.Since(q.lastRefresh) >= refreshEvery
	if due {
		q.lastRefresh = time.Now()
	}
	q.mu.Unlock()
	if !due {
		return false, nil
	}
	partitions, err := q.partitions(ctx)
	if err != nil {
		return false, err
	}
	keys := slices.Compact(q.def.Load().keysOfParts(partitions))
	return true, q.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		return q.shardOf(kv.Key).refresh(kv)
	})
}

// order yields the queue's partitions, and their topics, in the order in which a claim asks them:
// from the highest priority down. One claim in turnOfLower begins with a lower level, each time
// with the next one. Claims that begin with the same level begin with its partitions in turn.
func (q *Queue) order(levels []eventlog.Topic) iter.Seq2[*eventlog.Topic, eventlog.Partition] {
	turn := q.turn.Add(1)
	levels = slices.Clone(levels)
	slices.Reverse(levels)
	nth, lower := turn, uint64(len(levels))-1 // nth counts the claims that begin with one level
	switch {
	case lower == 0:
	case turn%turnOfLower == 0:
		first := int(1 + turn/turnOfLower%lower)
		nth = turn / turnOfLower / lower
		levels = slices.Concat(levels[first:first+1], levels[:first], levels[first+1:])
	default:
		nth = turn - turn/turnOfLower
	}
	return func(yield func(*eventlog.Topic, eventlog.Partition) bool) {
		for l := range levels {
			all := levels[l].Partitions
			for i := range all {
				if !yield(&levels[l], all[(int(nth%uint64(len(all)))+i)%len(all)]) {
					return
				}
			}
		}
	}
}

// One claim in turnOfLower begins with a lower priority than the highest.
const turnOfLower = 8

// levels returns the queue's topics, by priority, without those that were deleted; ErrUnknownTopic
// if all were.
func (q *Queue) levels(ctx context.Context) (topics []eventlog.Topic, err error) {
	var gone error
	for priority := range 1 + len(q.def.Load().levels) {
		t, err := q.topicFor(ctx, priority)
		switch {
		case err == nil:
			topics = append(topics, t)
		case errors.Is(err, eventlog.ErrUnknownTopic):
			gone = err
		default:
			return nil, err
		}
	}
	if len(topics) == 0 {
		return nil, gone
	}
	return topics, nil
}

// topicFor returns the topic for messages of a priority.
func (q *Queue) topicFor(ctx context.Context, priority int) (eventlog.Topic, error) {
	d := q.def.Load()
	ids := append([]eventlog.TopicID{d.topicID}, d.levels...)
	priority = min(max(priority, 0), len(ids)-1)
	t, err := q.owner.topicByID(ctx, ids[priority])
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		err = fmt.Errorf("its topic for priority %d was deleted (its topic for priority 0 is %q): delete the queue, or create another: %w", priority, d.topic, err)
	}
	if err != nil {
		return t, fmt.Errorf("queue %q: %w", q.name, err)
	}
	return t, nil
}

// topicBack returns the topic for a message that comes back from the wheel or from the dead
// letters: the topic for its priority. If that was deleted, it returns the topic for the next lower
// priority that has one or, if none has, the topic for the lowest priority that is left.
func (q *Queue) topicBack(ctx context.Context, priority int) (eventlog.Topic, error) {
	for priority = min(priority, len(q.def.Load().levels)); priority >= 0; priority-- {
		if t, err := q.topicFor(ctx, priority); !errors.Is(err, eventlog.ErrUnknownTopic) {
			return t, err
		}
	}
	left, err := q.levels(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	return left[0], nil
}

// topicByID finds a topic; if this process does not know it, it reads the catalog again: another
// process may just have created it.
func (qs *Queues) topicByID(ctx context.Context, id eventlog.TopicID) (eventlog.Topic, error) {
	t, err := qs.log.TopicByID(id)
	if !errors.Is(err, eventlog.ErrUnknownTopic) {
		return t, err
	}
	qs.mu.Lock()
	deleted := qs.deleted[id]
	qs.mu.Unlock()
	if deleted {
		return t, err
	}
	if err := qs.log.RefreshTopics(ctx); err != nil {
		return t, err
	}
	if t, err = qs.log.TopicByID(id); errors.Is(err, eventlog.ErrUnknownTopic) {
		qs.mu.Lock()
		defer qs.mu.Unlock()
		if len(qs.deleted) >= deletedMax {
			clear(qs.deleted)
		}
		qs.deleted[id] = true
	}
	return t, err
}

// topicOf finds which of the topics has a partition.
func topicOf(topics []eventlog.Topic, p eventlog.Partition) (eventlog.Topic, bool) {
	for _, t := range topics {
		if number(t, p) >= 0 {
			return t, true
		}
	}
	return eventlog.Topic{}, false
}
