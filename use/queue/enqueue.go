package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// NewMessage is a message to enqueue. Its bytes must not be changed any more once it was handed over.
type NewMessage struct {
	Key     []byte // nil: none. Messages of one key are in one partition, in order
	Value   []byte
	Headers []batch.RecordHeader
	Time    time.Time // zero: now
	// Delay is how long the message waits before it can be claimed, At until when; by the store's clock. At most one of them; at most
	// 100 years.
	Delay time.Duration
	At    time.Time
	// Priority is the message's level, 0 the lowest; a queue has Settings.Priorities of them.
	Priority int
	// Unique is the message's unique key, for a queue with Settings.Unique; "": none. While a message with the key is unfinished,
	// another is not enqueued. At most 512 bytes.
	Unique string
}

const (
	levelSuffix  = ".p"
	uniquePrefix = "queue/unique/"
	uniqueMax    = 512

	headerPriority = "weir.queue.priority"
	headerUnique   = "weir.queue.unique" // the key in the store that is forgotten when the message is done, and the token of its holder
)

// Enqueued says where a message was enqueued.
type Enqueued struct {
	ID       MessageID
	Repeated bool // an unfinished message has this unique key; ID is that message's
}

// Enqueue makes messages durable, all of them or none, and says where each is, in their order. Single messages of many callers share batches and
// flushes. Errors are those of publish.Publisher.Publish.
func (q *Queue) Enqueue(ctx context.Context, messages ...NewMessage) ([]Enqueued, error) {
	var (
		out    = make([]Enqueued, len(messages))
		events []publish.Event
		of     []int // which message each event is
		bound  bool  // the entry must check the queue's definition or unique keys in the store
		now    Time
	)
	for i, m := range messages {
		if now == 0 && (m.Delay != 0 || !m.At.IsZero()) {
			var err error
			if _, now, err = q.owner.clock.now(ctx); err != nil {
				return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
			}
		}
		e, err := q.event(ctx, m, now)
		if err != nil {
			return nil, fmt.Errorf("enqueue message %d of %d to queue %q: %w", i, len(messages), q.name, err)
		}
		events, of = append(events, e), append(of, i)
		bound = bound || m.Unique != "" || e.Topic == wheelTopic // delayed messages are for the queue with this id, and another process may have purged it
	}
	if bound {
		return q.enqueueBound(ctx, messages, events, func(ctx context.Context, e eventlog.Entry) (eventlog.Outcome, error) {
			if len(e.Batches) == 0 {
				return eventlog.Outcome{}, nil
			}
			return q.log.Append(ctx, e)
		})
	}
	placed, err := q.owner.publisher.Publish(ctx, events...)
	if err != nil {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	for i, at := range placed {
		topic, err := q.owner.topicByID(ctx, events[i].TopicID)
		if err != nil {
			return nil, fmt.Errorf("enqueue to queue %q: %w: the message was enqueued, but its topic cannot be found any more (%v)", q.name, eventlog.ErrUnsure, err)
		}
		out[of[i]].ID = MessageID{topic.Partitions[at.Partition], at.Offset}
	}
	return out, nil
}

// EnqueueWith is Enqueue with the caller's commit, which may do something else in the same transaction. commit may be called more
// than once; the last call counts. If all messages are repetitions the entry is empty. eventlog.ErrStale from commit means that the
// entry was refused.
//
// topic is one of the topics of the queue that the caller means. ErrUnknownQueue if it is not: then another queue has the name.
func (q *Queue) EnqueueWith(ctx context.Context, topic eventlog.TopicID, commit func(context.Context, eventlog.Entry) (eventlog.Outcome, error), messages ...NewMessage) error {
	if !q.def.Load().reads(topic) {
		return fmt.Errorf("%w: %q was deleted, and another one has its name", ErrUnknownQueue, q.name)
	}
	_, now, err := q.owner.clock.now(ctx)
	if err != nil {
		return fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	events := make([]publish.Event, len(messages))
	for i, m := range messages {
		if events[i], err = q.event(ctx, m, now); err != nil {
			return fmt.Errorf("enqueue message %d of %d to queue %q: %w", i, len(messages), q.name, err)
		}
	}
	_, err = q.enqueueBound(ctx, messages, events, commit)
	return err
}

// event returns the event for a message.
func (q *Queue) event(ctx context.Context, m NewMessage, now Time) (publish.Event, error) {
	settings := q.def.Load().settings
	switch {
	case m.Priority < 0 || m.Priority >= settings.Priorities:
		return publish.Event{}, &eventlog.InvalidError{What: "priority", Value: strconv.Itoa(m.Priority), Why: fmt.Sprintf("the queue has the levels 0 to %d", settings.Priorities-1)}
	case m.Unique != "" && !settings.Unique:
		return publish.Event{}, &eventlog.InvalidError{What: "unique key", Value: shorten(m.Unique, 64), Why: "the queue has no unique keys; alter it, so that it has (unique)"}
	case len(m.Unique) > uniqueMax:
		return publish.Event{}, &eventlog.InvalidError{What: "unique key", Value: shorten(m.Unique, 64), Why: fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(m.Unique), uniqueMax)}
	}
	m.Headers = append([]batch.RecordHeader(nil), m.Headers...)
	if m.Priority > 0 {
		m.Headers = append(m.Headers, batch.RecordHeader{Key: headerPriority, Value: []byte(strconv.Itoa(m.Priority))})
	}
	if m.Unique != "" {
		m.Headers = append(m.Headers, batch.RecordHeader{Key: headerUnique, Value: []byte(q.uniqueKey(m.Unique) + " " + rand.Text())})
	}
	if m.Delay != 0 || !m.At.IsZero() {
		due, err := m.due(now)
		if err != nil {
			return publish.Event{}, err
		}
		if due > 0 {
			if err := q.checkSize(ctx, m); err != nil {
				return publish.Event{}, err
			}
			return q.owner.wheel.event(ctx, q, m, now, due)
		}
	}
	topic, err := q.topicFor(ctx, m.Priority)
	return publish.Event{Topic: topic.Name, TopicID: topic.ID, Key: m.Key, Value: m.Value, Headers: m.Headers, Time: m.Time}, err
}

// checkSize refuses a message that its topic would refuse when it is due.
func (q *Queue) checkSize(ctx context.Context, m NewMessage) error {
	topic, err := q.topicFor(ctx, m.Priority)
	if err != nil {
		return err
	}
	rec := batch.Record{Key: m.Key, Value: m.Value, Headers: m.Headers}
	size := batch.SealedSize(&rec)
	if limit := topic.MaxMessageBytes(); size > limit {
		return fmt.Errorf("%w: the message makes a batch of %d bytes, and max.message.bytes of topic %q is %d", eventlog.ErrTooLarge, size, topic.Name, limit)
	}
	return eventlog.CheckDecoded(&rec)
}

// due returns when the message may be claimed; 0: at once.
func (m NewMessage) due(now Time) (Time, error) {
	due := now + Time(m.Delay.Milliseconds())
	switch {
	case m.Delay < 0 || m.Delay > delayMax:
		return 0, &eventlog.InvalidError{What: "delay", Value: m.Delay.String(), Why: fmt.Sprintf("0 to %v are allowed", delayMax)}
	case !m.At.IsZero() && m.Delay > 0:
		return 0, &eventlog.InvalidError{What: "delay", Value: m.Delay.String(), Why: "give a delay or a time, not both"}
	case !m.At.IsZero():
		due = Time(m.At.UnixMilli())
	}
	if due > now+Time(delayMax.Milliseconds()) {
		return 0, &eventlog.InvalidError{What: "time", Value: m.At.UTC().Format(time.RFC3339), Why: fmt.Sprintf("it is more than %v away", delayMax)}
	}
	if due <= now {
		return 0, nil
	}
	return due, nil
}

func priorityOf(rec batch.Record) int {
	text, _ := header(rec, headerPriority)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(n, 0)
}

// uniqueKey returns the store's key for a unique key: its hash, since it may be longer than a key in the store.
func (q *Queue) uniqueKey(unique string) string {
	sum := sha256.Sum256([]byte(unique))
	return uniquePrefix + q.id + "/" + hex.EncodeToString(sum[:16])
}

// enqueueBound enqueues the messages whose unique keys are free, and takes these keys, in one change that checks the queue's
// definition. The key of a message that is deleted or done is free: retention deleted it, or it was done while the queue had no
// unique keys.
func (q *Queue) enqueueBound(ctx context.Context, messages []NewMessage, events []publish.Event, commit func(context.Context, eventlog.Entry) (eventlog.Outcome, error)) ([]Enqueued, error) {
	fail := func(err error) ([]Enqueued, error) {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	for range changesMax {
		out := make([]Enqueued, len(messages))
		seen := make(map[string]int)               // unique keys of this call, with the first message of each
		taken := make(map[string]eventlog.Version) // keys in the store whose message is over
		var fresh []publish.Event
		var of []int
		for i, m := range messages {
			if m.Unique != "" {
				if first, twice := seen[m.Unique]; twice {
					out[i] = Enqueued{Repeated: true, ID: MessageID{Offset: eventlog.Offset(first)}} // resolved below
					continue
				}
				seen[m.Unique] = i
				kv, err := q.log.Get(ctx, q.uniqueKey(m.Unique))
				if err != nil {
					return fail(err)
				}
				if kv.Version > 0 {
					held, err := parseHolder(kv)
					if err != nil {
						return fail(err)
					}
					out[i].ID = held.id
					over, err := q.isOver(ctx, held)
					if err != nil {
						return fail(err)
					}
					if out[i].Repeated = !over; !over {
						continue
					}
					taken[kv.Key] = kv.Version
				}
			}
			fresh, of = append(fresh, events[i]), append(of, i)
		}
		err := q.publishBound(ctx, messages, fresh, of, taken, out, commit)
		if isStale(err) {
			if err := q.redefine(ctx); err != nil {
				return fail(err)
			}
			continue // another message took a key
		}
		if err != nil {
			return fail(err)
		}
		for i, m := range messages {
			if first := seen[m.Unique]; m.Unique != "" && first != i {
				out[i].ID = out[first].ID
			}
		}
		return out, nil
	}
	return fail(fmt.Errorf("%w: its unique keys were taken and freed %d times meanwhile", eventlog.ErrUnavailable, changesMax))
}

// isOver reports whether a message is certainly no longer in the queue. For one in the wheel, or that an older version moved out of it, that is not
// known: false.
func (q *Queue) isOver(ctx context.Context, h holder) (bool, error) {
	topics, err := q.levels(ctx)
	if err != nil {
		return false, err
	}
	id := h.id
	if h.delivered {
		id = h.place
	}
	if _, mine := topicOf(topics, id.Partition); !mine || h.moved {
		return false, nil
	}
	held, err := q.log.Bounds(ctx, id.Partition)
	if err == nil {
		err = held[0].Err
	}
	if err != nil {
		return false, err
	}
	st, err := q.shard(id.Partition).fresh(ctx)
	if err != nil {
		return false, err
	}
	mine := st.part(id.Partition)
	if id.Offset >= mine.next { // it was never claimed
		return id.Offset < held[0].Bounds.First, nil
	}
	r, there := mine.at(id.Offset)
	return !there || r.fate == done, nil // a worker may still answer a claimed message, even if the log no longer has it
}

// publishBound appends messages and puts their unique keys in one entry. Each message is a batch of its own, so that the store can
// put its offset in the key. taken are free keys that are still in the store.
func (q *Queue) publishBound(ctx context.Context, messages []NewMessage, fresh []publish.Event, of []int, taken map[string]eventlog.Version, out []Enqueued,
	commit func(context.Context, eventlog.Entry) (eventlog.Outcome, error)) error {
	var e eventlog.Entry
	if len(fresh) > 0 {
		e.Checks = []eventlog.Check{{Key: defKey(q.name), Version: q.def.Load().version}}
	}
	partitions := make([]eventlog.Partition, len(fresh))
	for n, event := range fresh {
		err := q.owner.publisher.PublishWith(ctx, func(_ context.Context, batches []eventlog.Batch) error {
			e.Batches = append(e.Batches, batches...)
			partitions[n] = batches[0].Partition
			return nil
		}, event)
		if err != nil {
			return err
		}
		if unique := messages[of[n]].Unique; unique != "" {
			key := q.uniqueKey(unique)
			e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: taken[key]})
			e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: taken[key].Next(), Value: holderValue(event.Headers, partitions[n]), AddBase: len(e.Batches)})
		}
	}
	outcome, err := commit(ctx, e)
	if err != nil {
		return err
	}
	for n, i := range of {
		out[i].ID = MessageID{partitions[n], outcome.Base[n]}
	}
	return nil
}
