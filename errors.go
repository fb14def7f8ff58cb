package weir

import (
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/publish"
)

// Errors that a caller can act on; errors.Is finds them. All but ErrUnsure mean that certainly nothing happened.
var (
	// ErrUnavailable: the store cannot be reached. Trying again may work.
	ErrUnavailable = eventlog.ErrUnavailable
	// ErrNoSpace: the disk of the store is full. It matches ErrUnavailable, too.
	ErrNoSpace = eventlog.ErrNoSpace
	// ErrUnsure: the change was sent to the store and the answer was lost. It may have happened.
	ErrUnsure = eventlog.ErrUnsure
	// ErrClosed: the Log or the Consumer was closed. After Log.Close every method that can fail returns it, except Close. Until Close
	// returns, the handlers that it waits for may use the Log.
	ErrClosed = eventlog.ErrClosed
	// ErrUnknownTopic: there is no topic of this name. EnsureTopic makes one.
	ErrUnknownTopic = eventlog.ErrUnknownTopic
	// ErrTopicDiffers: the topic exists, and differs from what EnsureTopic was given.
	ErrTopicDiffers = errors.New("the topic is there and differs")
	// ErrTooLarge: the events are larger than a limit allows, such as the topic's max.message.bytes.
	ErrTooLarge = eventlog.ErrTooLarge
	// ErrKeyReused: PublishOnce got a key that was used before, with other events.
	ErrKeyReused = publish.ErrKeyReused
	// ErrInProgress: other calls of PublishOnce are busy with the key. Trying again may work.
	ErrInProgress = publish.ErrInProgress
	// ErrUnknownGroup: there is no such group.
	ErrUnknownGroup = group.ErrNotFound
	// ErrGroupInUse: the group has members. Close its consumers first.
	ErrGroupInUse = group.ErrNotEmpty
	// ErrMixedGroup: the group has members that speak Kafka's protocol, and those of this library cannot share one with them. Use another name.
	ErrMixedGroup = group.ErrInconsistentProtocol
	// ErrNotAssigned: the partition is not assigned to this consumer, or no longer; or Seek moved it while the handler ran.
	ErrNotAssigned = errors.New("the partition is not assigned to this consumer")
	// ErrHandled: others have already committed the event's offset, or that of one before it in the batch. Roll back: the consumer
	// continues after what was handled, whatever the handler returns.
	ErrHandled = errors.New("the event was handled before")
	// ErrNotPostgres: only PostgreSQL can publish or commit within a transaction of the caller's.
	ErrNotPostgres = errors.New("the store is not PostgreSQL")
)

// InvalidError says what a caller asked for that is not allowed, and why.
type InvalidError = eventlog.InvalidError

// PanicError is what a handler's panic becomes. The stack is not in its text: it is logged at the first attempt.
type PanicError struct {
	Value any    // what it panicked with
	Stack []byte // where, as runtime/debug.Stack shows it
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Permanent marks a handler's error as final: the event is not tried again, and is a dead letter at once.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err}
}

type permanentError struct{ error }

func (e *permanentError) Unwrap() error { return e.error }

// FailedAt tells which event of a batch failed: those before it count as handled, and are not delivered again.
// FailedAt(i, Permanent(err)) gives the event up at once.
func FailedAt(index int, err error) error {
	if err == nil {
		return nil
	}
	return &failedAtError{index, err}
}

type failedAtError struct {
	index int
	err   error
}

func (e *failedAtError) Error() string {
	return fmt.Sprintf("event %d of the batch: %v", e.index, e.err)
}
func (e *failedAtError) Unwrap() error { return e.err }
