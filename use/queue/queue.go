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
	Beside Beside          // default: nobody acknowledges elsewhere
}

const (
	// loadTimeout bounds the wait for the store when a state is read.
	loadTimeout = 10 * time.Second
	// refreshEvery is how often a worker that waits looks whether other processes gave messages back.
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
	process   string // signs what this process writes
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
		records: newRecords(log), process: strconv.FormatUint(uint64(rand.Uint32()), 16), opened: make(map[string]*Queue), begun: make(chan struct{}),
	}
	qs.wheel = newWheel(qs)
	return qs
}

// Run lets claims and answers work until ctx ends; those that come before it wait for it. Then it waits for the changes that are under way. It is called
// once.
func (qs *Queues) Run(ctx context.Context) error {
	qs.mu.Lock()
	qs.ctx = ctx
	qs.mu.Unlock()
	close(qs.begun)
	qs.start(qs.wheel.run)
	qs.start(qs.followStore)
	qs.start(qs.forgetAllGone)
	qs.start(qs.retain)
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

// followStore forgets what was read of the store's state when the store may have lost its end, and wakes the claims that wait for a change of it.
func (qs *Queues) followStore(ctx context.Context) {
	for changed := qs.log.IncarnationChanged(); ; {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		changed = qs.log.IncarnationChanged() // before the rest: the store may change again meanwhile
		qs.clock.forget()
		qs.mu.Lock()
		opened := slices.Collect(maps.Values(qs.opened))
		qs.mu.Unlock()
		for _, q := range opened {
			q.mu.Lock()
			clear(q.shards) // one that has a change under way finds out by itself: its version is checked
			clear(q.dead)
			q.lastLook = time.Time{}
			q.mu.Unlock()
			q.ring()
		}
	}
}

// start runs work beside the callers until it is done, with the context of Run; false when Run does not run.
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

// sign names one change of this process.
func (qs *Queues) sign() string {
	return qs.process + "-" + strconv.FormatInt(qs.written.Add(1), 10)
}

// Open finds a queue: a trip where this process has not met it yet.
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

// openAs is Open, and does not trust what this process knows when that has another id: the queue may have been purged or made anew elsewhere.
func (qs *Queues) openAs(ctx context.Context, name, id string) (*Queue, error) {
	q, err := qs.Open(ctx, name)
	if err == nil && q.id != id {
		qs.dropOpened(q)
		q, err = qs.Open(ctx, name)
	}
	return q, err
}

// With opens a queue and does something with it: anew when it turns out to have been purged, or deleted and made again, by another process.
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

// heard is called when a definition was changed here: what is known of it is read anew when it is used next.
func (qs *Queues) heard(name string) {
	qs.mu.Lock()
	q := qs.opened[name]
	delete(qs.opened, name)
	qs.mu.Unlock()
	if q != nil {
		q.ring()
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
	turn    atomic.Uint64 // which shard is asked first

	mu       sync.Mutex                    // guards what follows
	shards   map[string]*shard             // by key
	dead     map[eventlog.Partition]*shard // of the dead-letter topic
	moved    chan struct{}                 // closed, and replaced, when there may be something to claim
	waiters  int                           // claims that wait; while there are some, watch runs
	unwatch  context.CancelFunc
	lastLook time.Time                   // when the states of all shards were looked at
	burying  map[eventlog.Partition]bool // partitions whose spent messages become dead letters at this moment
}

// Info tells what the queue is, as this process knows it.
func (q *Queue) Info() Info { return q.def.Load().info() }

// Now tells what the queue is, as the store has it: one trip. ErrUnknownQueue when this very queue is gone.
func (q *Queue) Now(ctx context.Context) (Info, error) {
	if err := q.redefine(ctx); err != nil {
		return Info{}, err
	}
	return q.Info(), nil
}

// redefine reads the definition anew: one trip. ErrUnknownQueue when this very queue is gone.
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

// shard is the state that decides over a partition, as the queue is set now.
func (q *Queue) shard(p eventlog.Partition) *shard {
	key := stateKey(q.id, p)
	if q.def.Load().settings.limited() {
		key = statesOf(q.id) + sharedShard
	}
	return q.shardOf(key)
}

// decides reports whether the state of a key is in force, as the queue is set now.
func (q *Queue) decides(key string) bool {
	rest, of := strings.CutPrefix(key, statesOf(q.id))
	return !of || (rest == sharedShard) == q.def.Load().settings.limited()
}

// change runs an operation on the state that decides over a partition.
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
		s = &shard{owner: q.owner, q: q, what: fmt.Sprintf("queue %q", q.name), key: key}
		q.shards[key] = s
	}
	return s
}

// ring wakes the claims that wait.
func (q *Queue) ring() {
	q.mu.Lock()
	defer q.mu.Unlock()
	close(q.moved)
	q.moved = make(chan struct{})
}

func (q *Queue) bell() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.moved
}

// wait counts a claim that waits, until the function it returns is called. While there is one, the log is watched for new messages.
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

// watch rings when new messages come. It costs no trip.
func (q *Queue) watch(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		levels, err := q.levels(ctx)
		if err != nil {
			q.ring()
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
		q.ring()
	}
}

// look reads the states of all shards, at most once in refreshEvery, and says whether it did: one trip per thousand partitions.
func (q *Queue) look(ctx context.Context) (looked bool, err error) {
	q.mu.Lock()
	due := time.Since(q.lastLook) >= refreshEvery
	if due {
		q.lastLook = time.Now()
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

// order lists the queue's partitions in the order in which a claim asks them: those of the highest priority first, but for one claim in
// lowestFirst; and of each level another one first each time.
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

// levels are the queue's topics, by priority.
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

// topicByID finds a topic, and asks the store before it says that there is none: another process may just have made it.
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

// topicFor is where a message of a priority goes.
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
