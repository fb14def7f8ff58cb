package eventlog

import (
	"errors"
	"fmt"
)

// Errors that a caller can act on. There are three outcomes: done (nil), unknown (ErrUnsure), and
// certainly not done (all errors but ErrUnsure).
var (
	// ErrStale: a key is no longer at the version that a check expects. Read it again and decide
	// anew.
	ErrStale = errors.New("stale: a key is no longer at the expected version")
	// ErrNoPartition: the partition was never created, or was deleted.
	ErrNoPartition = errors.New("no such partition")
	// ErrUnavailable: the store cannot be reached, and certainly nothing happened. Trying again may
	// work.
	ErrUnavailable = errors.New("store unavailable")
	// ErrNoSpace: the store's disk is full. It matches ErrUnavailable, too: certainly nothing
	// happened, and trying again may work.
	ErrNoSpace = fmt.Errorf("%w: no space", ErrUnavailable)
	// ErrNotWritable: the store's server is read-only. It matches ErrUnavailable, too: certainly
	// nothing happened, and trying again may work.
	ErrNotWritable = fmt.Errorf("%w: its server is read-only", ErrUnavailable)
	// ErrUpgraded: a newer weir has changed what the store is made of, and this process does not
	// know how. It matches ErrUnavailable, too: certainly nothing happened, and it may work at a
	// process of that version. Trying again here does not help.
	ErrUpgraded = fmt.Errorf("%w: a newer weir has upgraded it: run the newer weir, or a later one, in place of this one", ErrUnavailable)
	// ErrUpgradeDue: an older weir made the store, and this process was told not to upgrade it.
	ErrUpgradeDue = errors.New("the store was made by an older weir, and must not be upgraded (--no-upgrade, Options.NoUpgrade)")
	// ErrHeld: a transaction of a user of the store holds a key (Check.Holdable), or its change of
	// the key is not in the log yet. It matches ErrUnavailable, too: certainly nothing happened,
	// and trying again may work.
	ErrHeld = fmt.Errorf("%w: a transaction holds a key", ErrUnavailable)
	// ErrReadOnly: this process only reads the store, which others write (Replica). Certainly
	// nothing happened, and trying again here does not help.
	ErrReadOnly = errors.New("this process follows the store read-only, and nothing was changed: send changes to a process that runs without --read-only, and without read_only=true in the store's URL")
	// ErrRewound: the store may have been rewound. It is in another incarnation than Changes
	// returned last, and certainly nothing happened.
	ErrRewound = fmt.Errorf("%w: it may have been rewound; its state is read again", ErrUnavailable)
	// ErrUnsure: the change was sent to the store and the answer was lost. It may have happened.
	ErrUnsure = errors.New("outcome unknown: the change was sent to the store, but the answer was lost")
	// ErrCrowded: other answers, to slow readers, take the memory for answers. Nothing was read;
	// trying again may work.
	ErrCrowded = errors.New("no memory for the answer: other clients are slow to read theirs")
	// ErrBusy: too many changes of topics are made at the same time. It matches ErrUnavailable,
	// too: certainly nothing happened, and trying again may work.
	ErrBusy error = busyError("too many changes of topics at the same time")
	// ErrOverloaded: the caller's time was over before its turn came, while the store answered
	// others: there is more work than this process can do in that time. It matches ErrUnavailable,
	// too: certainly nothing happened, and trying again may work.
	ErrOverloaded error = busyError("overloaded: the time for the request was over first, while the store answered others")
	// ErrClosed: the log is stopping and accepts nothing new.
	ErrClosed = errors.New("log closed")

	// ErrUnknownTopic: there is no topic of this name.
	ErrUnknownTopic = errors.New("unknown topic")
	// ErrTopicExists: a topic of this name is there already.
	ErrTopicExists = errors.New("topic exists")
	// ErrTopicDiffers: the topic exists, and differs from what EnsureTopic asked for.
	ErrTopicDiffers = errors.New("the topic exists and differs")
	// ErrTooLarge: the records are larger than a limit allows.
	ErrTooLarge = errors.New("too large")

	// ErrOutOfOrder: a sequence number is not the one that follows the producer's last.
	ErrOutOfOrder = errors.New("out of order sequence number")
	// ErrUnknownProducer: a sequence number above 0 of a producer whose earlier sequence numbers
	// are unknown.
	ErrUnknownProducer = errors.New("unknown producer")
	// ErrFenced: the producer's epoch is older than one that the log has seen.
	ErrFenced = errors.New("producer epoch is fenced")
)

// busyError is ErrBusy and ErrOverloaded: the store is not to blame, so the text does not say that
// it is unavailable.
type busyError string

func (e busyError) Error() string      { return string(e) }
func (busyError) Is(target error) bool { return target == ErrUnavailable }

// StillIn returns ErrRewound if a store in the incarnation now was in another one when it was read.
// Both are as Incarnation.Store has them.
func StillIn(read, now string) error {
	if read == now {
		return nil
	}
	return fmt.Errorf("%w: what depends on a read in %q cannot be changed in %q", ErrRewound, read, now)
}

// RangeError says that an offset lies outside what a partition holds.
type RangeError struct {
	Partition   Partition
	Asked       Offset
	First, Next Offset
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("offset %d is outside partition %d, which holds [%d, %d)", e.Asked, e.Partition, e.First, e.Next)
}
