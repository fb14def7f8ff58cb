package weir

import (
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/internal/retry"
	"github.com/weir-log/weir/use/deliver"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
)

// Errors that a caller can act on; errors.Is finds them. All but ErrUnsure mean that certainly
// nothing happened. But some methods make several changes, one after the other, such as Seek,
// RedriveAll and DiscardDead: after an error the earlier ones may have happened.
var (
	// ErrUnavailable: the store cannot be reached. Trying again may work.
	ErrUnavailable = eventlog.ErrUnavailable
	// ErrOverloaded: the context ended before the call's turn came, while the store answered other
	// calls. It matches ErrUnavailable, too.
	ErrOverloaded = eventlog.ErrOverloaded
	// ErrNoSpace: the disk of the store is full. It matches ErrUnavailable, too.
	ErrNoSpace = eventlog.ErrNoSpace
	// ErrUpgraded: a newer weir has upgraded the store, and this program must be built with that
	// version, or a later one. It matches ErrUnavailable, too, and certainly nothing happened.
	// Trying again does not help.
	ErrUpgraded = eventlog.ErrUpgraded
	// ErrUpgradeDue: an older weir made the store, and Options.NoUpgrade forbids to upgrade it.
	ErrUpgradeDue = eventlog.ErrUpgradeDue
	// ErrReadOnly: the Log only follows its store (read_only=true in the URL of a bucket), and
	// nothing was changed. Trying again does not help.
	ErrReadOnly = eventlog.ErrReadOnly
	// ErrSpansShards: on a store made of shards, the parts of the change are on several of them.
	// Trying again does not help; docs/shards.md says what works.
	ErrSpansShards = eventlog.ErrSpansShards
	// ErrUnsure: the change was sent to the store and the answer was lost. It may have happened.
	ErrUnsure = eventlog.ErrUnsure
	// ErrClosed: the Log or the Consumer was closed. After Log.Close every method that can fail
	// returns it, except Close. While Close waits for handlers, these may still use the Log.
	ErrClosed = eventlog.ErrClosed
	// ErrUnknownTopic: there is no topic of this name. EnsureTopic makes one.
	ErrUnknownTopic = eventlog.ErrUnknownTopic
	// ErrTopicDiffers: the topic exists, and differs from what EnsureTopic asked for.
	ErrTopicDiffers = eventlog.ErrTopicDiffers
	// ErrTooLarge: the events are larger than a limit allows, such as the topic's
	// max.message.bytes.
	ErrTooLarge = eventlog.ErrTooLarge
	// ErrKeyReused: the key of a PublishOnce was used before, with different events.
	ErrKeyReused = publish.ErrKeyReused
	// ErrInProgress: another call of PublishOnce is using the key. Trying again may work.
	ErrInProgress = publish.ErrInProgress
	// ErrUnknownGroup: there is no such group.
	ErrUnknownGroup = group.ErrNotFound
	// ErrGroupInUse: the group has members. Close its consumers first.
	ErrGroupInUse = group.ErrNotEmpty
	// ErrMixedGroup: the group has members that divide the partitions by themselves, such as those
	// of Kafka Connect and Kafka Streams, and consumers of this library cannot join them. Use
	// another group name.
	ErrMixedGroup = group.ErrInconsistentProtocol
	// ErrNotAssigned: the partition is not, or no longer, assigned to this consumer; Seek moved it
	// while the handler ran; or the store was rewound and has lost the group's position, and the
	// partition begins again at the position that the store still has.
	ErrNotAssigned = deliver.ErrNotAssigned
	// ErrHandled: another consumer has already committed the offset of the event, or of an earlier
	// event of the batch. Roll back: this consumer continues after the handled events, whatever the
	// handler returns.
	ErrHandled = deliver.ErrHandled
	// ErrNotPostgres: within the caller's transaction, weir can commit, enqueue and acknowledge
	// only if the store is one PostgreSQL database. On other databases it can only publish, with
	// PublishSQLTx. On a store made of shards it can only publish, too (docs/shards.md).
	ErrNotPostgres = errors.New("the store is not PostgreSQL")
)

// InvalidError names the value that is not allowed, and says why.
type InvalidError struct {
	What, Value, Why string
}

func (e *InvalidError) Error() string { return (*eventlog.InvalidError)(e).Error() }

// PanicError is the error that a handler's panic becomes. Its text does not have the stack, which
// is logged at the first attempt.
type PanicError struct {
	Value any    // the value of the panic
	At    string // function, file and line
	Stack []byte // at most 4 KiB: the calls nearest to the panic
}

func (e *PanicError) Error() string { return (*recovered.Error)(e).Error() }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error { return (*recovered.Error)(e).Unwrap() }

// outward converts an error of package recovered to a *PanicError; other errors stay as they are.
func outward(err error) error {
	if panicked, is := err.(*recovered.Error); is {
		return (*PanicError)(panicked)
	}
	return err
}

// Permanent marks a handler's error as final: the event is not tried again, and becomes a dead
// letter immediately. In a batch of several events, mark the error with FailedAt, too: otherwise
// each event of the batch is tried once more alone. Permanent(nil) is nil.
func Permanent(err error) error { return retry.Permanent(err) }

// FailedAt marks which event of a batch failed. The events before it count as handled, and are not
// delivered again. With FailedAt(i, Permanent(err)) the event is not tried again.
func FailedAt(index int, err error) error { return retry.FailedAt(index, err) }
