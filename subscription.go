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

// Subscription says what a consumer reads and what it does with it. Group, Topics, and one of Handler and BatchHandler are needed; the
// zero value of everything else is right for many.
type Subscription struct {
	// Group is the consumer group. All consumers of one group, in any number of processes, share its partitions; each group gets all events.
	Group string
	// Topics are read by name. One that is not there yet is read once it is.
	Topics []string
	// Name is what people see of this consumer among the group's members, and in dead letters. Default: the program's name and process number.
	Name string

	// Handler handles one event. Calls for one partition come one after the other, in the order of the events; those for different
	// partitions come at the same time. The event counts as handled when Handler returns nil.
	//
	// ctx ends when the result does not matter any more: the partition went to another process, because this one was taken for dead; or
	// the time that Close gave is over.
	Handler func(ctx context.Context, e Event) error
	// BatchHandler handles up to MaxBatch events of one partition at once, in their order, as Handler handles one. FailedAt tells which
	// one failed. Without that word all are tried again together, and when the attempts are spent each is tried once more alone, so that
	// only those that fail by themselves become dead letters.
	BatchHandler func(ctx context.Context, events []Event) error
	// MinBatch is how many events BatchHandler waits for, MaxWait at most. Default 1: it waits for nothing.
	MinBatch int
	// MaxBatch is the most events that BatchHandler gets. Default 100.
	MaxBatch int
	// MaxWait is how long events wait for others to make MinBatch. Default 1 s.
	MaxWait time.Duration

	// Start is where a partition begins in which the group has no position: Earliest, the default, or Latest. There it has one from then on, also
	// before it handled anything, so that its lag is known.
	//
	// Latest is for what is there when the consumer joins and the group has no position in the topic at all. What comes later, a topic or a
	// partition that RaisePartitions adds, is read from its beginning. So is a partition without a position where the group has one in others of the
	// topic. A consumer that joins in the moment between the making of a topic and its discovery by the others, a second at most, takes it for one that was there.
	Start Position
	// Retry says how often and how soon an event is delivered again whose handler failed.
	Retry Retry
	// DeadLetter decides what becomes of an event that failed for good. Default ToDeadLetterTopic.
	DeadLetter DeadLetter
	// Concurrency bounds how many calls of the handler run at once in this consumer. Default 0: one for each partition.
	Concurrency int

	// CommitEvery is the pause between two commits while events are handled: so much may be delivered again after a crash. A commit
	// is one trip for all partitions. A consumer that was idle commits at once, and Close commits everything. Default 100 ms.
	CommitEvery time.Duration
	// Session is how long a consumer may be silent before the others of the group take its partitions over, and so about how long its
	// partitions rest when its process is killed. A handler may take as long as it likes. Default 10 s, at least 1 s.
	Session time.Duration

	// whole: the handler gets every event that the partitions ever had. One that lacks the next of them halts (ErrEventsMissing).
	whole bool
}

// The defaults of a Subscription.
const (
	maxBatchDefault    = 100
	maxWaitDefault     = time.Second
	commitEveryDefault = 100 * time.Millisecond
)

// checked returns the subscription with its defaults, or what is wrong with it.
func (s Subscription) checked() (Subscription, error) {
	s.MinBatch, s.MaxBatch = cmp.Or(s.MinBatch, 1), cmp.Or(s.MaxBatch, max(maxBatchDefault, s.MinBatch))
	s.MaxWait, s.CommitEvery = cmp.Or(s.MaxWait, maxWaitDefault), cmp.Or(s.CommitEvery, commitEveryDefault)
	s.Retry = s.Retry.withDefaults()
	s.Topics = slices.Clone(s.Topics)
	slices.Sort(s.Topics)
	s.Topics = slices.Compact(s.Topics)
	switch {
	case s.Group == "":
		return s, errors.New("it names no Group")
	case len(s.Topics) == 0:
		return s, errors.New("it names no Topics")
	case (s.Handler == nil) == (s.BatchHandler == nil):
		return s, errors.New("it needs a Handler or a BatchHandler, and not both")
	case s.BatchHandler == nil && (s.MinBatch > 1 || s.MaxBatch != maxBatchDefault):
		return s, errors.New("its MinBatch and MaxBatch are for a BatchHandler")
	case s.MinBatch < 1 || s.MaxBatch < s.MinBatch:
		return s, fmt.Errorf("its MinBatch is %d and its MaxBatch %d: it must be 1 ≤ MinBatch ≤ MaxBatch", s.MinBatch, s.MaxBatch)
	case s.Start.kind != earliest && s.Start.kind != latest:
		return s, fmt.Errorf("its Start is %v: it may be Earliest or Latest; Consumer.Seek goes elsewhere", s.Start)
	case s.Concurrency < 0:
		return s, fmt.Errorf("its Concurrency is %d", s.Concurrency)
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
