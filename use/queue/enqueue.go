package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/publish"
)

// NewMessage is a message to enqueue. Its bytes must not be changed after it was passed to a
// function.
type NewMessage struct {
	Key     []byte // nil: none. Messages of one key are in one partition, in order
	Value   []byte
	Headers []batch.RecordHeader // those named weir.queue.… are left out, except a schedule's: they belong to another message
	Time    time.Time            // zero: now, by the store's clock
	// Delay is how long the message waits before it can be claimed; At is when it can be claimed.
	// Both count by the store's clock. Only one may be set, at most 100 years ahead.
	Delay time.Duration
	At    time.Time
	// Priority is the message's level, 0 the lowest; a queue has Settings.Priorities of them.
	Priority int
	// Unique is the message's unique key, for a queue with Settings.Unique; "": none. While a
	// message with the key is unfinished, no other message with the key is enqueued. At most 512
	// bytes.
	Unique string
}

const (
	levelSuffix  = ".p"
	uniquePrefix = "queue/unique/"
	uniqueMax    = 512

	headerPriority = "weir.queue.priority"
	headerUnique   = "weir.queue.unique" // the key in the store that is deleted when the message is done, and the token of its holder
)

// Enqueued says where a message was enqueued.
type Enqueued struct {
	ID       MessageID
	Repeated bool // an unfinished message has this unique key; ID is that message's
}

// Enqueue makes messages durable, all of them or none, and says where each is, in their order.
// Single messages of many callers share batches and flushes. Errors are ErrUnknownQueue and those
// of publish.Publisher.Publish.
func (q *Queue) Enqueue(ctx context.Context, messages ...NewMessage) ([]Enqueued, error) {
	events, err := q.events(ctx, messages)
	if err != nil {
		return nil, err
	}
	bound := false // the entry must check the queue's definition or unique keys in the store
	for i, m := range messages {
		bound = bound || m.Unique != "" || events[i].Topic == wheelTopic // delayed messages are for the queue with this id, and another process may have purged it
	}
	if bound {
		return q.enqueueBound(ctx, messages, events, func(ctx context.Context, e eventlog.Entry, _ []Going) (eventlog.Outcome, error) {
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
	out := make([]Enqueued, len(messages))
	for i, at := range placed {
		topic, err := q.owner.topicByID(ctx, events[i].TopicID)
		if err != nil {
			return nil, fmt.Errorf("enqueue to queue %q: %w: the message was enqueued, but its topic was not found afterwards (%v)", q.name, eventlog.ErrUnsure, err)
		}
		out[i].ID = MessageID{topic.Partitions[at.Partition], at.Offset}
	}
	return out, nil
}

// Going says where a message is if an entry is committed.
type Going struct {
	Batch, Record int       // where the message is in the entry; Batch -1: it is not in the entry
	At            MessageID // with Batch -1: the unfinished message that has the unique key
}

// Commit commits an entry. to has an element for each message.
type Commit func(ctx context.Context, e eventlog.Entry, to []Going) (eventlog.Outcome, error)

// EnqueueWith is Enqueue with the caller's commit, which may do something else in the same
// transaction. commit may be called more than once; the last call counts. If all messages are
// repetitions the entry is empty. eventlog.ErrStale from commit means that the entry was refused.
//
// topic is one of the topics of the queue that the caller means. If q does not have it, another
// queue has the name now: ErrUnknownQueue.
func (q *Queue) EnqueueWith(ctx context.Context, topic eventlog.TopicID, commit Commit, messages ...NewMessage) error {
	if !q.def.Load().reads(topic) {
		return fmt.Errorf("%w: %q was deleted, and another queue has its name", ErrUnknownQueue, q.name)
	}
	events, err := q.events(ctx, messages)
	if err != nil {
		return err
	}
	_, err = q.enqueueBound(ctx, messages, events, commit)
	return err
}

// events returns the events for messages. If the known settings refuse a message, events reads the
// queue's settings and tries again: another process may have changed them.
func (q *Queue) events(ctx context.Context, messages []NewMessage) ([]publish.Event, error) {
	_, latest, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	events := make([]publish.Event, len(messages))
	current := false
	for i, m := range messages {
		if m.Time.IsZero() {
			m.Time = time.UnixMilli(int64(latest - 1)) // the TTL counts from Time, by the same clock, and must not end early; latest is rounded up
		}
		events[i], err = q.event(ctx, m, latest)
		var invalid *eventlog.InvalidError
		if errors.As(err, &invalid) && !current {
			current = true
			if err = q.redefine(ctx); err == nil {
				events[i], err = q.event(ctx, m, latest)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("enqueue message %d of %d to queue %q: %w", i, len(messages), q.name, err)
		}
	}
	return events, nil
}

// event returns the event for a message.
func (q *Queue) event(ctx context.Context, m NewMessage, now claims.Time) (publish.Event, error) {
	settings := q.def.Load().settings
	switch {
	case m.Priority < 0 || m.Priority >= settings.Priorities:
		return publish.Event{}, &eventlog.InvalidError{What: "priority", Value: strconv.Itoa(m.Priority), Why: fmt.Sprintf("the queue has the levels 0 to %d", settings.Priorities-1)}
	case m.Unique != "" && !settings.Unique:
		return publish.Event{}, &eventlog.InvalidError{What: "unique key", Value: shorten(m.Unique, 64), Why: "the queue does not accept unique keys; alter the queue: turn on its setting unique"}
	case len(m.Unique) > uniqueMax:
		return publish.Event{}, &eventlog.InvalidError{What: "unique key", Value: shorten(m.Unique, 64), Why: fmt.Sprintf("it has %d bytes; 1 to %d are allowed", len(m.Unique), uniqueMax)}
	}
	m.Headers = slices.DeleteFunc(slices.Clone(m.Headers), isQueues)
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
		return fmt.Errorf("%w: the message makes a batch of %d bytes, but max.message.bytes of topic %q is %d", eventlog.ErrTooLarge, size, topic.Name, limit)
	}
	return eventlog.CheckDecoded(&rec)
}

// due returns when the message may be claimed; 0: immediately.
func (m NewMessage) due(now claims.Time) (claims.Time, error) {
	due := now + claims.Time(m.Delay.Milliseconds())
	switch {
	case m.Delay < 0 || m.Delay > delayMax:
		return 0, &eventlog.InvalidError{What: "delay", Value: m.Delay.String(), Why: fmt.Sprintf("0 to %v are allowed", delayMax)}
	case !m.At.IsZero() && m.Delay > 0:
		return 0, &eventlog.InvalidError{What: "delay", Value: m.Delay.String(), Why: "give a delay or a time, not both"}
	case !m.At.IsZero():
		due = claims.Time(m.At.UnixMilli())
	}
	if due > now+claims.Time(delayMax.Milliseconds()) {
		return 0, &eventlog.InvalidError{What: "time", Value: m.At.UTC().Format(time.RFC3339), Why: fmt.Sprintf("it is more than %v in the future", delayMax)}
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

// uniqueKey returns the store's key for a unique key: its hash, since it may be longer than a key
// in the store.
func (q *Queue) uniqueKey(unique string) string { return uniqueKey(q.id, unique) }

func uniqueKey(id, unique string) string {
	sum := sha256.Sum256([]byte(unique))
	return uniquePrefix + id + "/" + hex.EncodeToString(sum[:16])
}

// enqueueBound enqueues the messages whose unique keys are free, and takes these keys, in one
// change that checks the queue's definition. A key whose message is deleted or done is free, too:
// retention deleted the message, or it was done while the queue had no unique keys.
func (q *Queue) enqueueBound(ctx context.Context, messages []NewMessage, events []publish.Event, commit Commit) ([]Enqueued, error) {
	fail := func(err error) ([]Enqueued, error) {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	first := make(map[string]int) // by unique key: the first message of this call that has it
	var keys []string             // their keys in the store
	for i, m := range messages {
		if _, twice := first[m.Unique]; m.Unique != "" && !twice {
			first[m.Unique] = i
			for _, id := range q.ids() {
				keys = append(keys, uniqueKey(id, m.Unique))
			}
		}
	}
	for range changesMax {
		held, err := q.held(ctx, keys)
		if err != nil {
			return fail(err)
		}
		out := make([]Enqueued, len(messages))
		var fresh []publish.Event
		var of []int
		for i, m := range messages {
			if m.Unique != "" {
				out[i].Repeated = first[m.Unique] != i
				for _, id := range q.ids() {
					if by, taken := held[uniqueKey(id, m.Unique)]; taken && !by.over {
						out[i] = Enqueued{ID: by.id, Repeated: true} // replaced below if an earlier message of this call has the key
					}
				}
				if out[i].Repeated {
					continue
				}
			}
			fresh, of = append(fresh, events[i]), append(of, i)
		}
		if len(fresh) == 0 { // there will be no entry to check whether the keys are still this queue's
			if err := q.redefine(ctx); err != nil {
				return fail(err)
			}
		}
		err = q.publishBound(ctx, messages, fresh, of, first, held, out, commit)
		if isStale(err) {
			if err := q.redefine(ctx); err != nil {
				return fail(err)
			}
			continue // another message took a key, or the queue was changed
		}
		if err != nil {
			return fail(err)
		}
		for i, m := range messages {
			if out[i].Repeated {
				out[i].ID = out[first[m.Unique]].ID
			}
		}
		return out, nil
	}
	changed := "the queue's definition"
	if len(keys) > 0 {
		changed += " or its messages' unique keys"
	}
	return fail(fmt.Errorf("%w: %s changed %d times meanwhile", eventlog.ErrUnavailable, changed, changesMax))
}

// publishBound appends messages and puts their unique keys in one entry. first has the first
// message of each unique key. held are the unique keys that the store has. If a fresh message has
// one of them, the message that holds it is over.
func (q *Queue) publishBound(ctx context.Context, messages []NewMessage, fresh []publish.Event, of []int, first map[string]int, held map[string]heldKey, out []Enqueued,
	commit Commit) error {
	var e eventlog.Entry
	var in []publish.Within
	if len(fresh) > 0 {
		e.Checks = []eventlog.Check{{Key: defKey(q.name), Version: q.def.Load().version}}
		err := q.owner.publisher.PublishWith(ctx, func(_ context.Context, batches []eventlog.Batch, within []publish.Within) error {
			e.Batches, in = batches, within
			return nil
		}, fresh...)
		if err != nil {
			return err
		}
	}
	for n, i := range of {
		if unique := messages[i].Unique; unique != "" {
			key, at := q.uniqueKey(unique), in[n]
			version := held[key].version
			e.Checks = append(e.Checks, eventlog.Check{Key: key, Version: version})
			e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: version.Next(), Value: holderValue(fresh[n].Headers, e.Batches[at.Batch].Partition, at.Record), AddBase: at.Batch + 1})
		}
	}
	to := make([]Going, len(messages))
	for i := range to {
		to[i] = Going{Batch: -1, At: out[i].ID}
	}
	for n, i := range of {
		to[i] = Going{Batch: in[n].Batch, Record: in[n].Record}
	}
	for i, m := range messages {
		if out[i].Repeated {
			to[i] = to[first[m.Unique]]
		}
	}
	outcome, err := commit(ctx, e, to)
	if err != nil {
		return err
	}
	for n, i := range of {
		at := in[n]
		out[i].ID = MessageID{e.Batches[at.Batch].Partition, outcome.Base[at.Batch] + eventlog.Offset(at.Record)}
	}
	return nil
}
