package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// Errors of work queues.
var (
	// ErrUnknownQueue: there is no queue of this name. CreateQueue makes one.
	ErrUnknownQueue = queue.ErrUnknownQueue
	// ErrQueueExists: CreateQueue found a queue of this name.
	ErrQueueExists = queue.ErrQueueExists
	// ErrQueueDiffers: the queue exists, and differs from what EnsureQueue asked for.
	ErrQueueDiffers = queue.ErrQueueDiffers
	// ErrClaimLost ends the context of a handler whose message another worker may have: its lease
	// could not be extended in time, or the queue was purged or deleted. If the lease ended while
	// the store could not be reached, the message may still be this worker's.
	ErrClaimLost = queue.ErrClaimLost
	// ErrHandlerTimeout ends the context of a handler that ran longer than WorkOptions.Timeout.
	ErrHandlerTimeout = queue.ErrHandlerTimeout
)

// QueueSettings say how a queue treats its messages. The zero value of a field means its default.
// docs/queue.md says more of each.
type QueueSettings struct {
	// Lease is how long a claim lasts unless the worker asks for another time. Default 30 s.
	Lease time.Duration
	// Attempts is how often a message is delivered before it becomes a dead letter. Default 10;
	// negative: no limit.
	Attempts int
	// Backoff is the longest pause after the first failed attempt; it doubles with each attempt, up
	// to BackoffMax. The actual pause is random, between 0 and the longest. Defaults: 1 s; 5 min,
	// or Backoff if that is longer.
	Backoff, BackoffMax time.Duration
	// Delays, if set, replace Backoff: the exact pauses after each failed attempt. The last one
	// also applies to all later attempts.
	Delays []time.Duration
	// TTL is how old a message may be when it is delivered. Its age counts from when it was
	// enqueued or, if it had a delay, from the delay's end; retries do not change that. An older
	// message becomes a dead letter, or is dropped if DropExpired is set. Default: no limit.
	TTL         time.Duration
	DropExpired bool
	// KeyOrder delivers messages of one key one at a time, in the order of their partition.
	// Messages without a key have no order, and there is none between priorities. The topics of the
	// queue's messages get no more partitions meanwhile.
	KeyOrder bool
	// KeepDone appends each handled message to the topic `<queue>.done`.
	KeepDone bool
	// Window is how many messages of a partition may be claimed or waiting for another attempt at a
	// time. Default 2000, as in KIP-932.
	Window int
	// Paused: no message can be claimed. Acks and enqueuing still work.
	Paused bool
	// Unique lets messages have a unique key: while a message is unfinished, no other message with
	// its key is enqueued.
	Unique bool
	// Concurrency bounds the messages claimed at the same time, and Rate the claims per second,
	// over all processes. With either limit all partitions share one state, so claims are
	// serialised. 0: no limit.
	Concurrency int
	Rate        float64
	// Priorities is the number of levels. Higher levels are delivered first; one claim in eight
	// starts with a lower level, each in turn, so that no level starves. Each level above 0 is a
	// topic, `<queue>.p1` and so on. Default 1; at most 8. It can grow, but not shrink.
	Priorities int
}

// QueueInfo describes a queue that exists.
type QueueInfo struct {
	Name, Topic string
	ID          string // the topic's id
	Settings    QueueSettings
}

// QueueStats counts the messages of a queue by state.
type QueueStats struct {
	Ready   int64         // they may be claimed now
	Claimed int64         // workers have them, with leases that have not ended
	Waiting int64         // they wait for another attempt, in their partition
	Delayed int64         // they wait for the end of a delay, or more than a minute for another attempt; -1: unknown
	Dead    int64         // dead letters, neither redriven nor discarded
	Oldest  time.Duration // how long the oldest message that may be claimed has been in its partition; 0: none
}

// NewMessage is a message to enqueue.
type NewMessage struct {
	Key     []byte // nil: none. Messages of one key are in one partition, in order
	Value   []byte
	Headers []Header  // those named weir.queue.… are left out, because they are about another message; only HeaderSchedule and HeaderTick stay
	Time    time.Time // zero: now, by the store's clock
	// Delay is how long the message waits before it can be claimed; At is when it can be claimed.
	// Both count by the store's clock. Only one may be set, at most 100 years ahead.
	Delay time.Duration
	At    time.Time
	// Priority is the message's level, 0 the lowest; a queue has QueueSettings.Priorities of them.
	Priority int
	// Unique is the message's unique key, for a queue with QueueSettings.Unique; "": none. While a
	// message with the key is unfinished, no other message with the key is enqueued. At most 512
	// bytes.
	Unique string
}

// Enqueued says where a message was enqueued.
type Enqueued struct {
	ID       MessageID
	Repeated bool // an unfinished message has this unique key; ID is that message's
}

// MessageID is a message's id: it stays the same for the whole life of the message.
type MessageID struct {
	Partition eventlog.Partition // its number in the store
	Offset    eventlog.Offset
}

// String is the id as every protocol writes it.
func (id MessageID) String() string { return queue.MessageID(id).String() }

// The states of messages.
const (
	MessageReady   = queue.Ready   // it may be claimed now
	MessageClaimed = queue.Claimed // a worker has it, with a lease that has not ended
	MessageWaiting = queue.Waiting // it waits for another attempt, in its partition
	MessageDelayed = queue.Delayed // it waits for the end of a delay, or more than a minute for another attempt
	MessageDone    = queue.Done
	MessageDead    = queue.Dead    // it is a dead letter
	MessageUnclear = queue.Unclear // it is done, or among more messages than a search reads
	MessageUnknown = queue.Unknown // the queue has no such message
)

// Condition is the state of a message.
type Condition struct {
	ID      MessageID
	State   string    // one of the states above
	Worker  string    // Claimed, Done and Dead: the worker that has or had the message
	Attempt int       // Claimed and Done: which attempt it is or was; Waiting and Delayed: how many failed
	Until   time.Time // Claimed: when the lease ends; Waiting and Delayed: when it can be claimed; by the store's clock
	Done    time.Time // Done: since when, by the store's clock; zero: the queue has no copy of it (KeepDone), or too many newer copies
	Error   string    // the error of the last attempt
	Letter  MessageID // Dead: the dead letter
}

func conditionOf(c queue.Condition) Condition {
	return Condition{
		ID: MessageID(c.ID), State: c.State, Worker: c.Worker, Attempt: c.Attempt, Until: c.Until, Done: c.Done, Error: c.Error, Letter: MessageID(c.Letter),
	}
}

// Browse says which messages BrowseQueue lists.
type Browse struct {
	State string    // MessageReady, MessageClaimed, MessageWaiting, MessageDelayed or, with KeepDone, MessageDone; "": any of the first three
	From  MessageID // the Next of the page before; zero: the beginning
	Limit int       // how many messages at most: 1 to 1000; 0: 100
}

// MessagePage is a page of a queue's messages. It may be empty though others follow.
type MessagePage struct {
	Messages []ListedMessage
	Next     MessageID // From of the next page; zero: there is none
}

// ListedMessage is a message and its state.
type ListedMessage struct {
	Condition
	Key, Value []byte
	Headers    []Header
	Time       time.Time // when it was enqueued; zero: unknown
}

// DeadMessage is a message that a queue gave up.
type DeadMessage struct {
	ID       MessageID // the message's id
	Letter   MessageID // the dead letter's own id: what DeadMessages begins after
	Key      []byte
	Value    []byte
	Headers  []Header // those that the message came with, and those that the queue added
	Reason   string   // attempts, expired, rejected or unreadable
	Error    string   // the error of the last attempt
	Attempts string
	Worker   string
	Enqueued time.Time
	Died     time.Time

	below queue.DeadLetter
}

func deadOf(d queue.DeadLetter) DeadMessage {
	return DeadMessage{
		ID: MessageID(d.ID), Letter: MessageID(d.Letter), Key: d.Key, Value: d.Value, Headers: headersOut(d.Headers), Reason: d.Reason, Error: d.Error,
		Attempts: d.Attempts, Worker: d.Worker, Enqueued: d.Enqueued, Died: d.Died, below: d,
	}
}

func lettersOf(dead []DeadMessage) []queue.DeadLetter {
	letters := make([]queue.DeadLetter, len(dead))
	for i := range dead {
		letters[i] = dead[i].below
	}
	return letters
}

func (m *NewMessage) below() queue.NewMessage {
	return queue.NewMessage{
		Key: m.Key, Value: m.Value, Headers: headersIn(m.Headers), Time: m.Time, Delay: m.Delay, At: m.At, Priority: m.Priority, Unique: m.Unique,
	}
}

func infoOf(i queue.Info) QueueInfo {
	return QueueInfo{Name: i.Name, Topic: i.Topic, ID: i.ID, Settings: QueueSettings(i.Settings)}
}

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
// if the name is taken, *InvalidError if a value is not allowed. After ErrUnsure try again: topics
// were created, and perhaps the queue. The queue begins with the oldest message in its topic.
func (l *Log) CreateQueue(ctx context.Context, q Queue) error {
	if err := l.usable(); err != nil {
		return wrap(err, "create queue %q", q.Name)
	}
	_, err := l.queues.Create(ctx, q.spec())
	return err
}

func (q Queue) spec() queue.Spec {
	return queue.Spec{Name: q.Name, Topic: q.Topic, Partitions: q.Partitions, Settings: queue.Settings(q.Settings)}
}

// EnsureQueue creates the queue if there is none of that name. If there is one it changes nothing:
// it returns nil if the topic and all settings that q sets are as in q, otherwise an
// ErrQueueDiffers that lists the differences. So every process may call it when it starts. Other
// errors are those of CreateQueue.
func (l *Log) EnsureQueue(ctx context.Context, q Queue) error {
	if err := l.usable(); err != nil {
		return wrap(err, "ensure queue %q", q.Name)
	}
	err := l.queues.Ensure(ctx, q.spec())
	if errors.Is(err, ErrQueueDiffers) {
		return fmt.Errorf("%w. Ask for what the queue has, or change the queue with AlterQueue", err)
	}
	return err
}

// Queue describes a queue.
func (l *Log) Queue(ctx context.Context, name string) (info QueueInfo, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		now, err := q.Now(ctx)
		info = infoOf(now)
		return err
	})
	return info, err
}

// Queues lists all queues, by name.
func (l *Log) Queues(ctx context.Context) ([]QueueInfo, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "list queues")
	}
	list, err := l.queues.List(ctx)
	infos := make([]QueueInfo, len(list))
	for i := range list {
		infos[i] = infoOf(list[i])
	}
	return infos, err
}

// AlterQueue lets change edit a queue's settings, durably. change may be called more than once. The
// settings take effect in every process with its next claim or ack. After ErrUnsure try again:
// topics were created, and perhaps the settings changed.
func (l *Log) AlterQueue(ctx context.Context, name string, change func(*QueueSettings) error) error {
	if err := l.usable(); err != nil {
		return wrap(err, "alter queue %q", name)
	}
	_, err := l.queues.Alter(ctx, name, func(s *queue.Settings) error { return change((*QueueSettings)(s)) })
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
// Its dead letters stay. After ErrUnsure try again: the messages may be discarded, or not.
func (l *Log) PurgeQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "purge queue %q", name)
	}
	return l.queues.Purge(ctx, name)
}

// DeleteQueue deletes a queue, its schedules and the state of its messages. Its topics stay: they
// may have other readers.
func (l *Log) DeleteQueue(ctx context.Context, name string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "delete queue %q", name)
	}
	return l.queues.Delete(ctx, name)
}

// Enqueue makes messages durable, all of them or none, and returns their ids, in their order. The
// caller must not change their bytes afterwards. Errors are those of Publish, and ErrUnknownQueue.
// After ErrUnsure it is safe to enqueue messages with unique keys again, unless a worker may have
// finished them already.
func (l *Log) Enqueue(ctx context.Context, name string, messages ...NewMessage) (at []Enqueued, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		below := make([]queue.NewMessage, len(messages))
		for i := range messages {
			below[i] = messages[i].below()
		}
		list, err := q.Enqueue(ctx, below...)
		for _, e := range list {
			at = append(at, Enqueued{MessageID(e.ID), e.Repeated})
		}
		return err
	})
	return at, err
}

// QueueStats counts a queue's messages: a few store calls, and one more for each thousand
// partitions or 4 MiB of their states. If the age of a partition's oldest message is not cached,
// the message is read: one store call for each thousand of these or 4 MiB.
func (l *Log) QueueStats(ctx context.Context, name string) (stats QueueStats, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		counted, err := q.Stats(ctx)
		stats = QueueStats(counted)
		return err
	})
	return stats, err
}

// FindMessage returns the state of a message. It may have to read a large part of the queue. The
// state is MessageUnclear if FindMessage has read as much as one search may read and has not found
// the message: then it is done, or among the messages that were not read.
func (l *Log) FindMessage(ctx context.Context, name string, id MessageID) (found Condition, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		c, err := q.Find(ctx, queue.MessageID(id))
		found = conditionOf(c)
		return err
	})
	return found, err
}

// BrowseQueue lists messages of a queue in a state without claiming them, the oldest of each
// partition first. A page has at most about 4 MiB of messages. Between two pages messages change
// their states: some may come twice or not at all.
func (l *Log) BrowseQueue(ctx context.Context, name string, b Browse) (page MessagePage, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		below, err := q.Browse(ctx, queue.Browse{State: b.State, From: queue.MessageID(b.From), Limit: b.Limit})
		page.Next = MessageID(below.Next)
		for _, m := range below.Messages {
			page.Messages = append(page.Messages, ListedMessage{conditionOf(m.Condition), m.Key, m.Value, headersOut(m.Headers), m.Time})
		}
		return err
	})
	return page, err
}

// DeadMessages lists a queue's dead messages that were neither redriven nor discarded, oldest
// first. It begins after the message whose DeadMessage.Letter equals after; with the zero id it
// begins with the first. It returns at most limit messages, at most 1000, and at most about 4 MiB.
func (l *Log) DeadMessages(ctx context.Context, name string, after MessageID, limit int) (dead []DeadMessage, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		letters, err := q.DeadLetters(ctx, queue.MessageID(after), limit)
		for _, d := range letters {
			dead = append(dead, deadOf(d))
		}
		return err
	})
	return dead, err
}

// Redrive moves dead messages back into their queue, each in one change. They have all their
// attempts again. It returns how many it certainly moved: messages that were already moved or
// discarded do not count. After ErrUnsure it may have moved more. To repeat it is safe.
func (l *Log) Redrive(ctx context.Context, name string, dead ...DeadMessage) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.Redrive(ctx, lettersOf(dead)...)
		return err
	})
	return moved, err
}

// RedriveAll moves all dead messages that exist now back into their queue. perSecond is how many it
// moves in a second at most; 0: no limit. It returns how many it moved.
func (l *Log) RedriveAll(ctx context.Context, name string, perSecond float64) (moved int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		moved, err = q.RedriveAll(ctx, perSecond)
		return err
	})
	return moved, err
}

// DiscardDead drops dead messages, and returns how many it dropped. Its errors mean what those of
// Redrive mean.
func (l *Log) DiscardDead(ctx context.Context, name string, dead ...DeadMessage) (dropped int, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		dropped, err = q.Discard(ctx, lettersOf(dead)...)
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
type Schedule struct {
	Name string // 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-'
	// Cron says when: minute, hour, day of the month, month and day of the week, as in "30 8 * *
	// MON-FRI"; or @hourly, @daily, @weekly, @monthly, @yearly.
	Cron string
	// Zone is the IANA time zone in which Cron is read, as "Europe/Berlin". Default UTC.
	Zone string
	// Message is what is enqueued. It has neither Time, Delay nor At, and at most 64 KiB.
	// HeaderSchedule and HeaderTick are added to it.
	Message NewMessage
	// Paused: nothing is enqueued. Ticks that pass meanwhile are skipped.
	Paused bool
	// Next is the next tick; zero: there is none any more, or the schedule is paused. SetSchedule
	// does not read it.
	Next time.Time
	// Err, in a list, says why the schedule cannot be read: then other fields may be empty. Set the
	// schedule again, or delete it. SetSchedule does not read Err.
	Err error
}

func scheduleOf(s queue.Schedule) Schedule {
	return Schedule{
		Name: s.Name, Cron: s.Cron, Zone: s.Zone, Paused: s.Paused, Next: s.Next, Err: s.Err,
		Message: NewMessage{ // it has neither Time, Delay nor At
			Key: s.Message.Key, Value: s.Message.Value, Headers: headersOut(s.Message.Headers), Priority: s.Message.Priority, Unique: s.Message.Unique,
		},
	}
}

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
		done, err := q.SetSchedule(ctx, queue.Schedule{Name: s.Name, Cron: s.Cron, Zone: s.Zone, Message: s.Message.below(), Paused: s.Paused})
		set = scheduleOf(done)
		return err
	})
	return set, err
}

// Schedules lists the schedules of a queue, by name.
func (l *Log) Schedules(ctx context.Context, name string) (list []Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		all, err := q.Schedules(ctx)
		for _, s := range all {
			list = append(list, scheduleOf(s))
		}
		return err
	})
	return list, err
}

// Schedule returns a schedule of a queue. ErrUnknownSchedule when there is none of that name.
func (l *Log) Schedule(ctx context.Context, name, schedule string) (found Schedule, err error) {
	err = l.withQueue(ctx, name, func(q *queue.Queue) error {
		s, err := q.Schedule(ctx, schedule)
		found = scheduleOf(s)
		return err
	})
	return found, err
}

// DeleteSchedule deletes a schedule of a queue. The messages that it enqueued stay.
// ErrUnknownSchedule when there is none of that name.
func (l *Log) DeleteSchedule(ctx context.Context, name, schedule string) error {
	return l.withQueue(ctx, name, func(q *queue.Queue) error { return q.DeleteSchedule(ctx, schedule) })
}
