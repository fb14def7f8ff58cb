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
	// ErrQueueDiffers: the queue exists, and differs from what EnsureQueue asked for.
	ErrQueueDiffers = errors.New("the queue exists and differs")
	// ErrClaimLost ends the context of a handler whose message another worker may have: its lease
	// could not be extended in time, or the queue was purged or deleted. If the lease ended while
	// the store could not be reached, the message may still be this worker's.
	ErrClaimLost = queue.ErrClaimLost
	// ErrHandlerTimeout ends the context of a handler that ran longer than WorkOptions.Timeout.
	ErrHandlerTimeout = queue.ErrHandlerTimeout
)

// Types of work queues. docs/queue.md says what each setting means.
type (
	// QueueSettings say how a queue treats its messages. The zero value of a field means its
	// default.
	QueueSettings = queue.Settings
	// QueueInfo describes a queue that exists.
	QueueInfo = queue.Info
	// QueueStats counts the messages of a queue by state.
	QueueStats = queue.Stats
	// NewMessage is a message to enqueue.
	NewMessage = queue.NewMessage
	// Enqueued says where a message was enqueued.
	Enqueued = queue.Enqueued
	// MessageID is a message's id: it stays the same for the whole life of the message.
	MessageID = queue.MessageID
	// Condition is the state of a message.
	Condition = queue.Condition
	// Browse says which messages BrowseQueue lists.
	Browse = queue.Browse
	// MessagePage is a page of a queue's messages. It may be empty though others follow.
	MessagePage = queue.Page
	// DeadMessage is a message that a queue gave up.
	DeadMessage = queue.DeadLetter
)

// Queue describes a work queue to create.
type Queue struct {
	Name string
	// Topic holds the queue's messages. It may exist already, and may have other readers. Default:
	// Name.
	Topic string
	// Partitions is the number of partitions of the topic if it must be created. Default 4.
	Partitions int
	Settings   QueueSettings
}

// CreateQueue creates a queue, durably, and those of its topics that do not exist. ErrQueueExists
// if the name is taken, *InvalidError if a value is not allowed. The queue begins with the oldest
// message in its topic.
func (l *Log) CreateQueue(ctx context.Context, q Queue) error {
	if err := l.usable(); err != nil {
		return wrap(err, "create queue %q", q.Name)
	}
	_, err := l.queues.Create(ctx, queue.Spec(q))
	return err
}

// EnsureQueue creates the queue if there is none of that name. If there is one it changes nothing:
// it returns nil if the topic and all settings that q sets are as in q, otherwise an
// ErrQueueDiffers that lists the differences. So every process may call it when it starts.
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
		list = append(list, fmt.Sprintf("topic %s, but %s was asked for", info.Topic, topic))
	}
	asked, is := reflect.ValueOf(q.Settings), reflect.ValueOf(info.Settings)
	for i := range asked.NumField() {
		if a, b := asked.Field(i), is.Field(i); !a.IsZero() && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			list = append(list, fmt.Sprintf("%s %v, but %v was asked for", asked.Type().Field(i).Name, b, a))
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("%w: queue %q has %s. Ask for what the queue has, or change the queue with AlterQueue", ErrQueueDiffers, q.Name, strings.Join(list, "; "))
	}
	return nil
}

// Queue describes a queue.
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

// AlterQueue lets change edit a queue's settings, durably. change may be called more than once. The
// settings take effect in every process with its next claim or ack.
func (l *Log) AlterQueue(ctx context.Context, name string, change func(*QueueSettings) error) error {
	if err := l.usable(); err != nil {
		return wrap(err, "alter queue %q", name)
	}
	_, err := l.queues.Alter(ctx, name, change)
	return err
}

// PauseQueue stops claims of a queue's messages. Acks and enqueuing go on.
func (l *Log) PauseQueue(ctx context.Context, name string) error {
	return l.AlterQueue(ctx, name, func(s *QueueSettings) error { s.Paused = true; return nil })
}

// ResumeQueue ends a PauseQueue.
func (l *Log) ResumeQueue(ctx context.Context, name string) error {
	return l.AlterQueue(ctx, name, func(s *QueueSettings) error { s.Paused = false; return nil })
}

// PurgeQueue discards all messages that a queue has now: ready, claimed, waiting and delayed ones.
// Its dead letters stay.
func (l *Log) PurgeQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "purge queue %q", name)
	}
	return l.queues.Purge(ctx, name)
}

// DeleteQueue deletes a queue and the state of its messages. Its topics stay: they may have other
// readers.
func (l *Log) DeleteQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "delete queue %q", name)
	}
	return l.queues.Delete(ctx, name)
}

// Enqueue makes messages durable, all of them or none, and returns their ids, in their order. The
// caller must not change their bytes afterwards. Errors are those of Publish, and ErrUnknownQueue.
// After ErrUnsure it is safe to enqueue messages with unique keys again.
func (l *Log) Enqueue(ctx context.Context, name string, messages ...NewMessage) (at []Enqueued, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		at, err = q.Enqueue(ctx, messages...)
		return err
	})
	return at, err
}

// QueueStats counts a queue's messages: a few store calls, and one for each partition whose oldest
// message is not cached.
func (l *Log) QueueStats(ctx context.Context, name string) (stats QueueStats, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		stats, err = q.Stats(ctx)
		return err
	})
	return stats, err
}

// FindMessage returns the state of a message. It may have to read a large part of the queue. The
// state is "unclear" if the message is done, or waits among more messages than one search reads.
func (l *Log) FindMessage(ctx context.Context, name string, id MessageID) (found Condition, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		found, err = q.Find(ctx, id)
		return err
	})
	return found, err
}

// BrowseQueue lists messages of a queue in a state without claiming them, the oldest of each
// partition first. A page has at most about 4 MiB of messages. Between two pages messages change
// their states: some may come twice or not at all.
func (l *Log) BrowseQueue(ctx context.Context, name string, b Browse) (page MessagePage, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		page, err = q.Browse(ctx, b)
		return err
	})
	return page, err
}

// DeadMessages lists a queue's dead messages that were neither redriven nor discarded, oldest
// first. It begins after the message whose DeadMessage.Letter equals after; with the zero id it
// begins with the first. It returns at most limit messages, at most 1000, and at most about 4 MiB.
func (l *Log) DeadMessages(ctx context.Context, name string, after MessageID, limit int) (dead []DeadMessage, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		dead, err = q.DeadLetters(ctx, after, limit)
		return err
	})
	return dead, err
}

// Redrive moves dead messages back into their queue, each in one change. They have all their
// attempts again. It returns how many it moved: messages that were already moved or discarded do
// not count.
func (l *Log) Redrive(ctx context.Context, name string, dead ...DeadMessage) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.Redrive(ctx, dead...)
		return err
	})
	return moved, err
}

// RedriveAll moves all dead messages that exist now back into their queue, at most perSecond; 0: no
// limit. It returns how many it moved.
func (l *Log) RedriveAll(ctx context.Context, name string, perSecond float64) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.RedriveAll(ctx, perSecond)
		return err
	})
	return moved, err
}

// DiscardDead drops dead messages, and returns how many it dropped.
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

// ErrUnknownSchedule: the queue has no schedule of this name.
var ErrUnknownSchedule = queue.ErrUnknownSchedule

// Schedule enqueues a message at each tick of a cron expression: one message, however many
// processes run.
type Schedule = queue.Schedule

// Headers of a message that a schedule enqueued: the schedule's name, and the tick's time (RFC
// 3339, UTC).
const (
	HeaderSchedule = queue.HeaderSchedule
	HeaderTick     = queue.HeaderTick
)

// SetSchedule creates a schedule of a queue, durably, or replaces the schedule that has its name.
// It returns the schedule with its next tick. Every process may call it when it starts: no tick
// that is due is lost if Cron and Zone stay the same. *InvalidError if a value is not allowed.
func (l *Log) SetSchedule(ctx context.Context, name string, s Schedule) (set Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		set, err = q.SetSchedule(ctx, s)
		return err
	})
	return set, err
}

// Schedules lists the schedules of a queue, by name.
func (l *Log) Schedules(ctx context.Context, name string) (list []Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		list, err = q.Schedules(ctx)
		return err
	})
	return list, err
}

// Schedule returns a schedule of a queue. ErrUnknownSchedule when there is none of that name.
func (l *Log) Schedule(ctx context.Context, name, schedule string) (found Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		found, err = q.Schedule(ctx, schedule)
		return err
	})
	return found, err
}

// DeleteSchedule deletes a schedule of a queue. The messages that it enqueued stay.
// ErrUnknownSchedule when there is none of that name.
func (l *Log) DeleteSchedule(ctx context.Context, name, schedule string) error {
	return l.withQueue(ctx, name, func(q *queue.Queue) error { return q.DeleteSchedule(ctx, schedule) })
}
