package deliver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/retry"
)

// Subscription says what a consumer reads and what it does with it. Group, Topics, and one of
// Handle and React are required; the zero value of every other field is a sensible default.
type Subscription struct {
	Group  string
	Topics []string
	// Name names the consumer for people. Default: the program's name and process number.
	Name string

	// Handle handles 1 to MaxBatch events of one partition. Calls for one partition come one after
	// the other, in the order of the events; calls for different partitions run concurrently. The
	// events belong to Handle, but not their slice. ctx ends when the result does not matter any
	// more.
	Handle func(ctx context.Context, from *Partition, events []Event) error
	// React returns what an event causes; nil: nothing. It is used instead of Handle.
	React    func(ctx context.Context, from *Partition, e Event) (Reaction, error)
	MinBatch int           // how many events a batch waits for, at most for MaxWait; default 1
	MaxBatch int           // default 1, or MinBatch
	MaxWait  time.Duration // default 1 s

	// Start is where the group begins in a partition in which it has no committed offset: Earliest,
	// the default, or Latest.
	Start Position
	// Whole: the handler must get every event that the partitions ever had. If the next events are
	// missing the partition halts (ErrEventsMissing).
	Whole       bool
	Retry       retry.Policy
	DeadLetter  DeadLetter // default ToDeadLetterTopic
	Concurrency int        // how many calls run concurrently in this consumer; default 0: one for each partition
	Paused      bool       // it begins with all partitions paused

	CommitEvery time.Duration // the pause between two commits while events are handled; default 100 ms
	Session     time.Duration // see group.PeerConfig; default 10 s
}

// The defaults of a Subscription.
const (
	maxWaitDefault     = time.Second
	commitEveryDefault = 100 * time.Millisecond
)

// checked returns the subscription with its defaults, or an error that says what is wrong with it.
func (s Subscription) checked() (Subscription, error) {
	s.MinBatch = cmp.Or(s.MinBatch, 1)
	s.MaxBatch = cmp.Or(s.MaxBatch, s.MinBatch)
	s.MaxWait, s.CommitEvery = cmp.Or(s.MaxWait, maxWaitDefault), cmp.Or(s.CommitEvery, commitEveryDefault)
	s.Retry = s.Retry.WithDefaults()
	s.Topics = slices.Clone(s.Topics)
	slices.Sort(s.Topics)
	s.Topics = slices.Compact(s.Topics)
	switch {
	case s.Group == "":
		return s, errors.New("it has no Group")
	case len(s.Topics) == 0:
		return s, errors.New("it has no Topics")
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
	if s.DeadLetter == nil {
		s.DeadLetter = ToDeadLetterTopic
	}
	return s, nil
}
