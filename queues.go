package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-log/weir/use/queue"
)

// Errors of work queues.
var (
	// ErrUnknownQueue: there is no queue of this name. CreateQueue makes one.
	ErrUnknownQueue = queue.ErrUnknownQueue
	// ErrQueueExists: CreateQueue found a queue of this name.
	ErrQueueExists = queue.ErrQueueExists
	// ErrQueueDiffers: the queue is there, and is not as EnsureQueue was told.
	ErrQueueDiffers = errors.New("the queue is there and differs")
	// ErrClaimLost ends the context of a handler whose message others may have: its lease ended, since it could not be extended in time, or the queue was
	// purged or deleted. Only where a lease ended while the store could not be reached may the message still be this worker's.
	ErrClaimLost = errors.New("the claim of the message was lost")
	// ErrHandlerTimeout ends the context of a handler that ran longer than WorkOptions.Timeout.
	ErrHandlerTimeout = errors.New("the handler ran longer than WorkOptions.Timeout")
)

// What a queue is made of. docs/queue.md tells what each setting means.
type (
	// QueueSettings tell how a queue treats its messages. The zero value of every field means its default.
	QueueSettings = queue.Settings
	// QueueInfo is a queue as it is.
	QueueInfo = queue.Info
	// QueueStats counts what a queue has.
	QueueStats = queue.Stats
	// NewMessage is a message to enqueue.
	NewMessage = queue.NewMessage
	// Enqueued says where a message was enqueued.
	Enqueued = queue.Enqueued
	// MessageID names a message for as long as it is known.
	MessageID = queue.MessageID
	// Condition is what became of a message.
	Condition = queue.Condition
	// DeadMessage is a message that a queue gave up.
	DeadMessage = queue.DeadLetter
)

// Queue describes a work queue to be made.
type Queue struct {
	Name string
	// Topic is where its messages are. It may be there already, and may have other readers. Default: Name.
	Topic string
	// Partitions is how many the topic gets if it has to be made. Default 4.
	Partitions int
	Settings   QueueSettings
}

// CreateQueue makes a queue, durably, and its topics where they are not there. ErrQueueExists when the name is taken, *InvalidError when
// something of it is not allowed. A queue begins with the oldest message that its topic has.
func (l *Log) CreateQueue(ctx context.Context, q Queue) error {
	if err := l.usable(); err != nil {
		return wrap(err, "create queue %q", q.Name)
	}
	_, err := l.queues.Create(ctx, queue.Spec(q))
	return err
}

// EnsureQueue makes the queue if there is none of that name. If there is one it changes nothing: the answer is nil when the topic and every setting that q
// names are so, and an ErrQueueDiffers that says what is not so else. So every process may call it when it starts.
func (l *Log) EnsureQueue(ctx context.Context, q Queue) error {
	err := l.CreateQueue(ctx, q)
	if !errors.Is(err, ErrQueueExists) {
		return err
	}
	info, err := l.Queue(ctx, q.Name)
	if err != nil {
		return fmt.Errorf("ensure queue %q: %w", q.Name, err)
	}
	var list []string
	if topic := cmp.Or(q.Topic, info.Topic); topic != info.Topic {
		list = append(list, fmt.Sprintf("topic %s where %s was asked for", info.Topic, topic))
	}
	asked, is := reflect.ValueOf(q.Settings), reflect.ValueOf(info.Settings)
	for i := range asked.NumField() {
		if a, b := asked.Field(i), is.Field(i); !a.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			list = append(list, fmt.Sprintf("%s %v where %v was asked for", asked.Type().Field(i).Name, b, a))
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("%w: queue %q has %s: change what was asked for, or the queue with AlterQueue", ErrQueueDiffers, q.Name, strings.Join(list, ", "))
	}
	return nil
}

// Queue tells what a queue is.
func (l *Log) Queue(ctx context.Context, name string) (info QueueInfo, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		info, err = q.Now(ctx)
		return err
	})
	return info, err
}

// Queues lists all queues, by name.
func (l *Log) Queues(ctx context.Context) ([]QueueInfo, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "list queues")
	}
	return l.queues.List(ctx)
}

// AlterQueue lets change edit a queue's settings, durably. It may be called more than once. Every process obeys from the next change of the queue on.
func (l *Log) AlterQueue(ctx context.Context, name string, change func(*QueueSettings) error) error {
	if err := l.usable(); err != nil {
		return wrap(err, "alter queue %q", name)
	}
	_, err := l.queues.Alter(ctx, name, change)
	return err
}

// PauseQueue stops a queue from giving out messages. Acks and enqueuing go on.
func (l *Log) PauseQueue(ctx context.Context, name string) error {
	return l.AlterQueue(ctx, name, func(s *QueueSettings) error { s.Paused = true; return nil })
}

// ResumeQueue ends a PauseQueue.
func (l *Log) ResumeQueue(ctx context.Context, name string) error {
	return l.AlterQueue(ctx, name, func(s *QueueSettings) error { s.Paused = false; return nil })
}

// PurgeQueue gives up all messages that a queue has now: those that wait, are claimed, or are to come later. Its dead letters stay.
func (l *Log) PurgeQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "purge queue %q", name)
	}
	return l.queues.Purge(ctx, name)
}

// DeleteQueue deletes a queue and all it knows of its messages. Its topics stay: they may have other readers.
func (l *Log) DeleteQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "delete queue %q", name)
	}
	return l.queues.Delete(ctx, name)
}

// Enqueue makes messages durable, all of them or none, and says where each is, in their order. Their bytes must not be changed any more.
// Errors are those of Publish, and ErrUnknownQueue. After ErrUnsure a message with a unique key may be enqueued again.
func (l *Log) Enqueue(ctx context.Context, name string, messages ...NewMessage) (at []Enqueued, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		at, err = q.Enqueue(ctx, messages...)
		return err
	})
	return at, err
}

// QueueStats counts what a queue has: a trip or two for each of its partitions.
func (l *Log) QueueStats(ctx context.Context, name string) (stats QueueStats, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		stats, err = q.Stats(ctx)
		return err
	})
	return stats, err
}

// FindMessage tells what became of a message. It may have to read a good part of the queue.
func (l *Log) FindMessage(ctx context.Context, name string, id MessageID) (found Condition, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		found, err = q.Find(ctx, id)
		return err
	})
	return found, err
}

// DeadMessages lists messages that a queue gave up and that were neither redriven nor discarded, oldest first: after DeadMessage.Letter of one, or from the
// first for the zero id; at most limit, 1000, and about 4 MiB.
func (l *Log) DeadMessages(ctx context.Context, name string, after MessageID, limit int) (dead []DeadMessage, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		dead, err = q.DeadLetters(ctx, after, limit)
		return err
	})
	return dead, err
}

// Redrive moves dead messages back into their queue, each in one change, with all attempts before them. It says how many: those that were moved or
// discarded already are none.
func (l *Log) Redrive(ctx context.Context, name string, dead ...DeadMessage) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.Redrive(ctx, dead...)
		return err
	})
	return moved, err
}

// RedriveAll moves all dead messages back that there are now, at most so many a second; 0: as fast as it goes.
func (l *Log) RedriveAll(ctx context.Context, name string, perSecond float64) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.RedriveAll(ctx, perSecond)
		return err
	})
	return moved, err
}

// DiscardDead drops dead messages, and says how many.
func (l *Log) DiscardDead(ctx context.Context, name string, dead ...DeadMessage) (dropped int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		dropped, err = q.Discard(ctx, dead...)
		return err
	})
	return dropped, err
}

func (l *Log) withQueue(ctx context.Context, name string, do func(*queue.Queue) error) error {
	if err := l.usable(); err != nil {
		return wrap(err, "queue %q", name)
	}
	return l.queues.With(ctx, name, do)
}
