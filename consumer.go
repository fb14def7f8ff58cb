package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/publish"
)

// Subscription says what a consumer reads and what it does with it. Group, Topics, and one of
// Handler and BatchHandler are required; the zero value of every other field is a sensible default.
type Subscription struct {
	// Group is the consumer group. All consumers of one group, in any number of processes, share
	// the partitions; each group gets all events.
	Group string
	// Topics are the names of the topics to read. A topic that does not exist yet is read once it
	// is created.
	Topics []string
	// Name names this consumer for people: in the list of the group's members and in dead letters.
	// Default: the program's name and process number.
	Name string

	// Handler handles one event. Calls for one partition come one after the other, in the order of
	// the events; calls for different partitions run concurrently. The event counts as handled when
	// Handler returns nil.
	//
	// ctx ends when the result does not matter any more: the partition is not this consumer's any
	// more, because its session timed out, the topic was deleted, or the store was rewound and lost
	// the group's position; or Close does not wait for the handler any longer.
	Handler func(ctx context.Context, e Event) error
	// BatchHandler handles up to MaxBatch events of one partition in one call, in their order, as
	// Handler handles one. Return FailedAt to say which event failed. After any other error the
	// batch is tried again; after the last attempt each of its events is tried once more alone, and
	// only the events that fail then become dead letters.
	BatchHandler func(ctx context.Context, events []Event) error
	// MinBatch is how many events a batch waits for, at most for MaxWait. Default 1: no wait.
	MinBatch int
	// MaxBatch is the most events that BatchHandler gets. Default 100.
	MaxBatch int
	// MaxWait is how long events wait at most until there are MinBatch of them. Default 1 s.
	MaxWait time.Duration

	// Start is where the group begins in a partition in which it has no committed offset: Earliest,
	// the default, or Latest. With Latest the ends of the partitions that hold events are committed
	// immediately, so that no later event is skipped if the consumer dies before its first commit.
	// With Earliest nothing is committed before an event was handled. Give all consumers of a group
	// the same Start: until the group's first commit each of them follows its own.
	//
	// Latest applies only to topics that exist when the consumer joins and in which the group has
	// no committed offset at all. Topics that are created later, and partitions that
	// RaisePartitions adds, are read from their beginning. So is a partition without a committed
	// offset if the group has one in another partition of the topic. If a consumer joins in the
	// second between the creation of a topic and its discovery by the group, the group may begin at
	// the end of the topic.
	Start Position
	// Retry says how often and how soon an event is delivered again after its handler failed.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default ToDeadLetterTopic.
	DeadLetter DeadLetter
	// Concurrency bounds how many calls of the handler run concurrently in this consumer. Default
	// 0: one for each partition.
	Concurrency int

	// CommitEvery is the pause between two commits while events are handled: events handled since
	// the last commit come again after a crash. A commit is one trip for all partitions. After an
	// idle time a consumer commits immediately. Close commits everything. Default 100 ms.
	CommitEvery time.Duration
	// Session is how long a consumer may be silent before other members of the group take over its
	// partitions. After a consumer's process was killed, nobody works on its partitions for about
	// this long. A handler may run for longer. Default 10 s, at least 1 s. On a bucket it is at
	// least five times the linger of its URL.
	Session time.Duration
}

// maxBatchDefault is the default of Subscription.MaxBatch.
const maxBatchDefault = 100

// Retry says how often, and after which pauses, an event is delivered again after its handler
// failed. The zero value tries 15 times, with pauses of up to 100 ms, 200 ms and so on up to 30 s.
// Together the pauses take 100 s on average, so that an outage of a minute makes no dead letters.
// Later events of the partition wait meanwhile. If they must not wait so long, set fewer attempts.
type Retry struct {
	Attempts int           // how often an event is delivered before it becomes a dead letter; default 15, 1: no retry, negative: for ever
	First    time.Duration // longest pause after the first attempt; it doubles with each attempt; default 100 ms
	Max      time.Duration // upper limit of all pauses; default 30 s
}

// Consumer reads topics as a member of a group. Its methods may be called concurrently. Handlers
// may call all of them except Close.
type Consumer struct {
	log *Log
	c   *deliver.Consumer
}

// Consume joins the group and starts to deliver events to the subscription's handler. ctx bounds
// only the joining; the consumer works until it or the Log is closed. While the store is
// unavailable the consumer waits.
func (l *Log) Consume(ctx context.Context, sub Subscription) (*Consumer, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "consume as group %q", sub.Group)
	}
	to, err := l.subscription(sub)
	if err != nil {
		return nil, fmt.Errorf("consume: the subscription is not complete: %w", err)
	}
	return l.consume(ctx, to)
}

// subscription checks a Subscription's handlers, and converts it to one of package deliver.
func (l *Log) subscription(s Subscription) (deliver.Subscription, error) {
	to := deliver.Subscription{
		Group: s.Group, Topics: s.Topics, Name: s.Name, MinBatch: s.MinBatch, MaxBatch: s.MaxBatch, MaxWait: s.MaxWait, Start: s.Start.at,
		Retry: retry.Policy(s.Retry), DeadLetter: l.deadLetter(s.DeadLetter), Concurrency: s.Concurrency, CommitEvery: s.CommitEvery, Session: s.Session,
	}
	switch {
	case (s.Handler == nil) == (s.BatchHandler == nil):
		return to, errors.New("it needs a Handler or a BatchHandler, and not both")
	case s.BatchHandler == nil && (s.MinBatch > 1 || s.MaxBatch != 0):
		return to, errors.New("its MinBatch and MaxBatch need a BatchHandler")
	case s.BatchHandler == nil:
		to.Handle = func(ctx context.Context, from *deliver.Partition, events []deliver.Event) error {
			return s.Handler(ctx, l.delivered(from, &events[0]))
		}
	default:
		to.MaxBatch = cmp.Or(s.MaxBatch, max(maxBatchDefault, s.MinBatch))
		to.Handle = func(ctx context.Context, from *deliver.Partition, events []deliver.Event) error {
			batch := make([]Event, len(events))
			for i := range events {
				batch[i] = l.delivered(from, &events[i])
			}
			return s.BatchHandler(ctx, batch)
		}
	}
	return to, nil
}

// consume joins a group and starts a consumer, unless the Log was closed.
func (l *Log) consume(ctx context.Context, sub deliver.Subscription) (*Consumer, error) {
	below, err := l.delivery.Join(ctx, sub)
	if err != nil {
		return nil, err
	}
	c := &Consumer{log: l, c: below}
	if !l.begin(c, func() { below.Start(ctx) }) {
		return nil, errors.Join(fmt.Errorf("consume as group %q: %w", sub.Group, ErrClosed), below.Leave(ctx))
	}
	return c, nil
}

// Close ends the consumer in order: no further call of the handler begins, running calls finish,
// what they handled is committed, and other members of the group take over the partitions
// immediately. When ctx is about to end, the contexts of calls that still run are cancelled. A call
// that does not return then is left behind: its events will be delivered again, and the error names
// its partition and offset. Close returns at the latest a second after ctx ends. A handler must not
// call it.
func (c *Consumer) Close(ctx context.Context) error {
	c.log.forget(c)
	return c.c.Close(ctx)
}

// Assigned is a partition that a consumer works on.
type Assigned struct {
	TopicPartition
	Next      int64 // offset of the next event to be handled
	Committed int64 // the group's committed offset: where another consumer would start
	Paused    bool
	// Halted is why the partition has halted; nil: it has not, or Resume or Seek was called since.
	// If it halted because an event was given up, Halted also wraps the last error of the handler.
	Halted error
}

// Assigned lists the partitions that this consumer works on now, sorted by topic and number.
func (c *Consumer) Assigned() []Assigned { return assigned(c.c.Assigned()) }

func assigned(list []deliver.Assigned) (out []Assigned) {
	for _, a := range list {
		out = append(out, Assigned{
			TopicPartition: TopicPartition(a.TopicPartition), Next: int64(a.Next), Committed: int64(a.Committed), Paused: a.Paused, Halted: halted(a),
		})
	}
	return out
}

func halted(a deliver.Assigned) error {
	if a.GaveUp == nil {
		return outward(a.Halted)
	}
	return fmt.Errorf("%w: %w", outward(a.Halted), outward(a.GaveUp))
}

// Pause stops the delivery of partitions: all, or those named. After it returns, no further call of
// the handler begins for them. It does not wait for a running call. The partitions stay assigned to
// this consumer. Pause also applies to partitions that this consumer gets later, but not to other
// consumers.
func (c *Consumer) Pause(tps ...TopicPartition) { c.c.Pause(inward(tps)...) }

// Resume continues paused partitions: all, or those named. A partition that halted at an event
// tries the event again.
func (c *Consumer) Resume(tps ...TopicPartition) { c.c.Resume(inward(tps)...) }

// Seek moves partitions to another position: all of this consumer, or those named, which must be
// assigned to it. If it returns nil, the new position is committed. It does not wait for a running
// call of the handler, so a handler may call Seek; the result of that call no longer changes the
// position. After an error some partitions may have moved; their positions are committed later.
func (c *Consumer) Seek(ctx context.Context, to Position, tps ...TopicPartition) error {
	if c.log.over.Load() {
		return fmt.Errorf("seek to %v: %w", to, ErrClosed)
	}
	return c.c.Seek(ctx, to.at, inward(tps)...)
}

func inward(tps []TopicPartition) (list []deliver.TopicPartition) {
	for _, tp := range tps {
		list = append(list, deliver.TopicPartition(tp))
	}
	return list
}

// Failure describes an event whose handler failed for good.
type Failure struct {
	Event       Event
	Err         error // the error of the last attempt; a *PanicError if the handler panicked
	Attempts    int   // how often this process tried the event
	FirstFailed time.Time
	Group       string
	Consumer    string // Subscription.Name
}

// DeadLetter decides what becomes of an event that failed for good. It returns the dead letters to
// publish instead. If it returns none, the event is dropped, which is logged. If it returns an
// error, the partition halts at the event: the error is logged, and no more events of that
// partition are delivered until Consumer.Resume. The partition also halts if DeadLetter panics, or
// if a dead letter is too large for its topic or invalid.
//
// Publishing the dead letters and committing the event as handled are one change of the log: each
// dead letter is there once, also after a crash. On a store made of shards they may be two changes,
// and a dead letter may be there twice after a crash (docs/shards.md).
type DeadLetter func(ctx context.Context, f Failure) ([]Event, error)

// ToDeadLetterTopic is the default DeadLetter. It publishes the event to the topic `<topic>.dlt`,
// with the same key, value and headers, and with the headers below. If that topic does not exist it
// is created, with as many partitions as the event's topic and without retention: its events stay
// until they are deleted. For other settings create it beforehand, or alter it.
func ToDeadLetterTopic(_ context.Context, f Failure) ([]Event, error) {
	return []Event{f.DeadLetterEvent()}, nil
}

// Discard is a DeadLetter that drops the event.
func Discard(context.Context, Failure) ([]Event, error) { return nil, nil }

// Halt is a DeadLetter that stops the partition at the event.
func Halt(context.Context, Failure) ([]Event, error) { return nil, deliver.ErrHalt }

// Headers of a dead letter, in addition to the headers of the event. Times are in RFC 3339.
const (
	HeaderReason      = deliver.HeaderReason      // the last error, cut after 4 KiB
	HeaderAttempts    = deliver.HeaderAttempts    // how often the event was tried
	HeaderGroup       = deliver.HeaderGroup       // the consumer group
	HeaderConsumer    = deliver.HeaderConsumer    // the consumer's name
	HeaderTopic       = deliver.HeaderTopic       // where the event is stored
	HeaderPartition   = deliver.HeaderPartition   //
	HeaderOffset      = deliver.HeaderOffset      //
	HeaderTime        = deliver.HeaderTime        // when the event was published
	HeaderFirstFailed = deliver.HeaderFirstFailed // when it failed for the first time
)

// DeadLetterTopic is the name of a topic's dead-letter topic.
func DeadLetterTopic(topic string) string { return deliver.DeadLetterTopic(topic) }

// DeadLetterEvent is what ToDeadLetterTopic publishes. A DeadLetter of your own may change it and
// return it. Its time is that of the publication.
func (f Failure) DeadLetterEvent() Event {
	letter := (&deliver.Failure{
		Topic: f.Event.Topic, Partition: f.Event.Partition, Event: deliver.Event{Record: recordOf(&f.Event)}, Err: f.Err, Attempts: f.Attempts,
		FirstFailed: f.FirstFailed, Group: f.Group, Consumer: f.Consumer,
	}).Letter()
	return Event{Topic: letter.Topic, Key: letter.Key, Value: letter.Value, Headers: headersOut(letter.Headers)}
}

// deadLetter converts a DeadLetter to one of package deliver; nil stays nil.
func (l *Log) deadLetter(decide DeadLetter) deliver.DeadLetter {
	if decide == nil {
		return nil
	}
	return func(ctx context.Context, f deliver.Failure) ([]publish.Event, error) {
		letters, err := decide(ctx, Failure{
			Event: l.delivered(f.From, &f.Event), Err: outward(f.Err), Attempts: f.Attempts, FirstFailed: f.FirstFailed, Group: f.Group, Consumer: f.Consumer,
		})
		return l.outgoing(nil, letters), err
	}
}
