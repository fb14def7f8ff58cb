package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
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
	// ctx ends when the result does not matter any more: the group took the partition from this
	// consumer, because its session timed out; or Close does not wait for the handler any longer.
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
	// the default, or Latest. With Latest it commits immediately where the partitions end that hold
	// events, so that no later event is skipped if the consumer dies before its first commit. With
	// Earliest it commits nothing before it has handled an event. Give all consumers of a group the
	// same Start: until the group's first commit each of them follows its own.
	//
	// Latest applies only to topics that exist when the consumer joins and in which the group has
	// no committed offset at all. Topics that are created later, and partitions that
	// RaisePartitions adds, are read from their beginning. So is a partition without a committed
	// offset if the group has one in another partition of the topic. If a consumer joins in the
	// second between the creation of a topic and its discovery by the group, the group may begin at
	// its end.
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
	// partitions. So it is about how long nobody works on the partitions after its process was
	// killed. A handler may run for longer. Default 10 s, at least 1 s.
	Session time.Duration

	// whole: the handler must get every event that the partitions ever had. If the next events are
	// missing the partition halts (ErrEventsMissing).
	whole bool
	// react replaces the handler: what it returns is appended to streams in the entry that commits
	// the event.
	react func(ctx context.Context, e Event) ([]StreamPart, error)
}

// The defaults of a Subscription.
const (
	maxBatchDefault    = 100
	maxWaitDefault     = time.Second
	commitEveryDefault = 100 * time.Millisecond
)

// checked returns the subscription with its defaults, or an error that says what is wrong with it.
func (s Subscription) checked() (Subscription, error) {
	s.MinBatch, s.MaxBatch = cmp.Or(s.MinBatch, 1), cmp.Or(s.MaxBatch, max(maxBatchDefault, s.MinBatch))
	s.MaxWait, s.CommitEvery = cmp.Or(s.MaxWait, maxWaitDefault), cmp.Or(s.CommitEvery, commitEveryDefault)
	s.Retry = s.Retry.withDefaults()
	s.Topics = slices.Clone(s.Topics)
	slices.Sort(s.Topics)
	s.Topics = slices.Compact(s.Topics)
	switch {
	case s.Group == "":
		return s, errors.New("it has no Group")
	case len(s.Topics) == 0:
		return s, errors.New("it has no Topics")
	case (s.Handler == nil) == (s.BatchHandler == nil) && s.react == nil:
		return s, errors.New("it needs a Handler or a BatchHandler, and not both")
	case s.BatchHandler == nil && (s.MinBatch > 1 || s.MaxBatch != maxBatchDefault):
		return s, errors.New("its MinBatch and MaxBatch need a BatchHandler")
	case s.MinBatch < 1 || s.MaxBatch < s.MinBatch:
		return s, fmt.Errorf("its MinBatch is %d and its MaxBatch %d: it must be 1 ≤ MinBatch ≤ MaxBatch", s.MinBatch, s.MaxBatch)
	case s.Start.kind != earliest && s.Start.kind != latest:
		return s, fmt.Errorf("its Start is %v: it must be Earliest or Latest; for another offset call Consumer.Seek", s.Start)
	case s.Concurrency < 0:
		return s, fmt.Errorf("its Concurrency is %d: it must be 0 or more", s.Concurrency)
	}
	for _, topic := range s.Topics {
		if err := eventlog.CheckTopicName(topic); err != nil {
			return s, err
		}
		if s.DeadLetter == nil {
			if err := eventlog.CheckTopicName(DeadLetterTopic(topic)); err != nil {
				return s, fmt.Errorf("its dead-letter topic: %w", err)
			}
		}
	}
	if s.BatchHandler == nil {
		s.MaxBatch = 1
	}
	if s.DeadLetter == nil {
		s.DeadLetter = ToDeadLetterTopic
	}
	return s, nil
}
