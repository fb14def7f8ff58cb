package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
)

// Config sets Queues up. The zero value of every field means its default.
type Config struct {
	Logger *slog.Logger    // default: slog.Default()
	Tracer eventlog.Tracer // default: no spans
	Beside Beside          // default: no acks are committed with SQL
}

const (
	// loadTimeout bounds the wait for the store when a state is read.
	loadTimeout = 10 * time.Second
	// refreshEvery is how often a waiting worker checks whether other processes gave messages back.
	refreshEvery = time.Second
)

// Queues are the queues of a log. All methods may be called at once. Claims and answers need Run to be running.
type Queues struct {
	log       *eventlog.Log
	publisher *publish.Publisher
	logger    *slog.Logger
	tracer    eventlog.Tracer
	beside    Beside // nil: none
	clock     clock
	records   *records
	wheel     *wheel
	scheduler *scheduler
	process   string // begins the writer ids of this process
	written   atomic.Int64

	mu      sync.Mutex // guards what follows
	opened  map[string]*Queue
	ctx     context.Context // of Run; nil before and after
	begun   chan struct{}   // closed when Run has begun
	workers sync.WaitGroup
}

// New returns the queues of a log. Messages are enqueued with the publisher.
func New(log *eventlog.Log, publisher *publish.Publisher, cfg Config) *Queues {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	qs := &Queues{
		log: log, publisher: publisher, logger: cfg.Logger, tracer: eventlog.Traced(cfg.Tracer), beside: cfg.Beside, clock: clock{log: log},
		process: strconv.FormatUint(uint64(rand.Uint32()), 16), opened: make(map[string]*Queue), begun: make(chan struct{}),
	}
	qs.records = newRecords(log, qs.start)
	qs.wheel, qs.scheduler = newWheel(qs), newScheduler(qs)
	return qs
}

// Run serves claims and answers until ctx ends; those that come before Run wait for it. Then it waits for the changes in flight.
// Call it once.
func (qs *Queues) Run(ctx context.Context) error {
	qs.mu.Lock()
	qs.ctx = ctx
	qs.mu.Unlock()
	close(qs.begun)
	qs.start(qs.wheel.run)
	qs.start(qs.followStore)
	qs.start(qs.forgetAllGone)
	qs.start(qs.retain)
	qs.start(qs.scheduler.run)
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

// followStore drops all cached states when the store may have been rewound, and wakes the waiting claims.
func (qs *Queues) followStore(ctx context.Context) {
	for changed := qs.log.IncarnationChanged(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = qs.log.IncarnationChanged() // first: the store may change again meanwhile
		qs.clock.forget()
		qs.mu.Lock()
		opened := slices.Collect(maps.Values(qs.opened))
		qs.mu.Unlock()
		for _, q := range opened {
			q.mu.Lock()
			clear(q.shards) // a shard with a change in flight notices by itself: the change checks its version
			clear(q.dead)
			q.lastRefresh = time.Time{}
			q.mu.Unlock()
			q.wakeClaims()
		}
	}
}

// start runs work in a goroutine that Run waits for, with the context of Run; false when Run is not running.
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

// Open finds a queue: one store call if this process has not opened it yet.
func (qs *Queues) Open(ctx context.Context, name string) (*Queue, error) {
	qs.mu.Lock()
	q := qs.opened[name]
	qs.mu.Unlock()
	if q != nil {
		return q, nil
	}
	d, err := qs.read(ctx, name)
	if err != nil {
		return nil, err
	}
	q, err = qs.adopt(d)
	if err != nil {
		return nil, err
	}
	return q, nil
}

// openAs is Open, but reads the store again if the known queue has another id: another process may have purged it, or deleted and
// created it.
func (qs *Queues) openAs(ctx context.Context, name, id string) (*Queue, error) {
	q, err := qs.Open(ctx, name)
	if err == nil && q.id != id {
		qs.dropOpened(q)
		q, err = qs.Open(ctx, name)
	}
	return q, err
}

// With opens a queue and calls do with it, and once more if another process had purged it, or deleted and created it.
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

func (qs *Queues) adopt(d definition) (*Queue, error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.opened[d.name]; q != nil && q.id == d.id {
		return q, nil
	}
	q := &Queue{
		owner: qs, log: qs.log, name: d.name, id: d.id,
		shards: make(map[string]*shard), dead: make(map[eventlog.Partition]*shard), burying: make(map[eventlog.Partition]bool), moved: make(chan struct{}), records: qs.records,
	}
	q.def.Store(&d)
	qs.opened[d.name] = q
	return q, nil
}

// heard is called when this process changed a definition: the next use reads it again.
func (qs *Queues) heard(name string) {
	qs.mu.Lock()
	q := qs.opened[name]
	delete(qs.opened, name)
	qs.mu.Unlock()
	if q != nil {
		q.wakeClaims()
	}
}

// Queue is one queue. All methods may be called at once.
type Queue struct {
	owner   *Queues
	log     *eventlog.Log
	name    string
	id      string
	def     atomic.Pointer[definition]
	records *records
	turn    atomic.Uint64 // counts claims: it decides which shard is asked first

	mu          sync.Mutex                    // guards what follows
	shards      map[string]*shard             // by key
	dead        map[eventlog.Partition]*shard // of the dead-letter topic
	moved       chan struct{}                 // closed, and replaced, when there may be something to claim
	waiters     int                           // waiting claims; while there are any, watch runs
	unwatch     context.CancelFunc
	lastRefresh time.Time                   // when the states of all shards were last read
	burying     map[eventlog.Partition]bool // partitions whose spent messages are becoming dead letters now
}

// Info describes the queue as this process knows it.
func (q *Queue) Info() Info { return q.def.Load().info() }

// Now describes the queue as the store has it: one store call. ErrUnknownQueue if it was deleted, even if another one has its name.
func (q *Queue) Now(ctx context.Context) (Info, error) {
	if err := q.redefine(ctx); err != nil {
		return Info{}, err
	}
	return q.Info(), nil
}

// redefine reads the definition again: one store call. ErrUnknownQueue if the queue was deleted, even if another one has its name.
func (q *Queue) redefine(ctx context.Context) error {
	d, err := q.owner.read(ctx, q.name)
	if err == nil && d.id != q.id {
		err = fmt.Errorf("%w: %q was deleted, and another one has its name", ErrUnknownQueue, q.name)
	}
	if errors.Is(err, ErrUnknownQueue) {
		q.owner.dropOpened(q)
	}
	if err != nil {
		return err
	}
	q.def.Store(&d)
	return nil
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
	key := stateKey(q.id, p)
	if q.def.Load().settings.limited() {
		key = statesOf(q.id) + sharedShard
	}
	return q.shardOf(key)
}

// decides reports whether a key holds the state, under the queue's present settings.
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
		o.err = nil
	}
}

func (q *Queue) shardOf(key string) *shard {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.shards[key]
	if s == nil {
		s = &shard{owner: q.owner, q: q, name: fmt.Sprintf("queue %q", q.name), key: key}
		q.shards[key] = s
	}
	return s
}

// wakeClaims wakes the waiting claims.
func (q *Queue) wakeClaims() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.moved)
	q.moved = make(chan struct{})
}

func (q *Queue) claimsWoken() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.moved
}

// wait counts a waiting claim until done is called. While there is one, watch waits for new messages.
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

// watch wakes the claims when new messages come. It costs no store call.
func (q *Queue) watch(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		levels, err := q.levels(ctx)
		if err != nil {
			q.wakeClaims()
			return
		}
		var spans []eventlog.Span
		for _, t := range levels {
			for _, p := range t.Partitions {
				b, _ := q.log.Known(p)
				spans = append(spans, eventlog.Span{Partition: p, From: b.Next, MaxBytes: 1})
			}
		}
		_, err = q.log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: 1, MaxWait: time.Minute})
		if err != nil {
			failures++
			pause(ctx, failures)
			continue
		}
		failures = 0
		q.wakeClaims()
	}
}

// refreshStates reads the states of all shards, at most once in refreshEvery, and reports whether it did: one store call per
// thousand partitions.
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
	return true, q.log.ListAll(ctx, statesOf(q.id), func(kv eventlog.KeyValue) error {
		return q.shardOf(kv.Key).refresh(kv)
	})
}

// place is a partition of the queue, in its topic.
type place struct {
	topic     eventlog.Topic
	partition eventlog.Partition
}

// order lists the queue's partitions in the order in which a claim asks them: the highest priority first (one claim in lowestFirst:
// the lowest), and in each level another partition first each time.
func (q *Queue) order(levels []eventlog.Topic) (places []place) {
	turn := q.turn.Add(1)
	levels = slices.Clone(levels)
	if turn%lowestFirst != 0 {
		slices.Reverse(levels)
	}
	for _, t := range levels {
		n := len(t.Partitions)
		for i := range n {
			places = append(places, place{t, t.Partitions[(int(turn%uint64(n))+i)%n]})
		}
	}
	return places
}

// lowestFirst says how many claims there are for each that begins with the lowest priority.
const lowestFirst = 8

// levels returns the queue's topics, by priority.
func (q *Queue) levels(ctx context.Context) ([]eventlog.Topic, error) {
	d := q.def.Load()
	topics := make([]eventlog.Topic, 0, 1+len(d.levels))
	for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
		t, err := q.owner.topicByID(ctx, id)
		if err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
			return nil, fmt.Errorf("queue %q: %w", q.name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("queue %q: a topic of it was deleted (%q, or that of a priority): delete the queue, or make another: %w", q.name, d.topic, err)
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// topicByID finds a topic; if this process does not know it, it reads the catalog again: another process may just have created it.
func (qs *Queues) topicByID(ctx context.Context, id eventlog.TopicID) (eventlog.Topic, error) {
	t, err := qs.log.TopicByID(id)
	if !errors.Is(err, eventlog.ErrUnknownTopic) {
		return t, err
	}
	if err := qs.log.RefreshTopics(ctx); err != nil {
		return t, err
	}
	return qs.log.TopicByID(id)
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

// topicFor returns the topic for messages of a priority.
func (q *Queue) topicFor(ctx context.Context, priority int) (eventlog.Topic, error) {
	topics, err := q.levels(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	return topics[min(max(priority, 0), len(topics)-1)], nil
}

// pause waits before another try: 20 ms, twice as long each time up to a second, and a little at random.
func pause(ctx context.Context, failures int) {
	const first, longest = 20 * time.Millisecond, time.Second
	d := min(first<<min(failures-1, 10), longest)
	select {
	case <-time.After(d/2 + rand.N(d)):
	case <-ctx.Done():
	}
}
