package queue

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	// Delay is how long the message is held back, and At until when; by the store's clock. One of them at most; at most 100 years.
	Delay time.Duration
	At    time.Time
	// Priority is the message's level, 0 the lowest; a queue has Settings.Priorities of them.
	Priority int
	// Unique is the message's unique key, for a queue with Settings.Unique; "": none. While a message of the key is not done, another
	// is not enqueued. At most 512 bytes.
	Unique string
}

const (
	levelSuffix  = ".p"
	uniquePrefix = "queue/unique/"
	uniqueMax    = 512

	headerPriority = "weir.queue.priority"
	headerUnique   = "weir.queue.unique" // the key in the store that is forgotten when the message is done
)

// Enqueued says where a message was enqueued.
type Enqueued struct {
	ID       MessageID
	Repeated bool // a message of its unique key was there already, and this is its id
}

// Enqueue makes messages durable, all of them or none, and says where each is, in their order. Single messages of many callers share batches and
// flushes. Errors are those of publish.Publisher.Publish.
func (q *Queue) Enqueue(ctx context.Context, messages ...NewMessage) ([]Enqueued, error) {
	var (
		out    = make([]Enqueued, len(messages))
		events []publish.Event
		of     []int // which message each event is
		unique bool
		later  bool // some are to come later
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
		events, of, unique = append(events, e), append(of, i), unique || m.Unique != ""
		later = later || e.Topic == wheelTopic
	}
	if unique {
		return q.enqueueUnique(ctx, messages, events)
	}
	placed, err := q.owner.publisher.Publish(ctx, events...)
	if err != nil {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	for i, at := range placed {
		topic, err := q.log.TopicByID(events[i].TopicID)
		if err != nil {
			return nil, fmt.Errorf("enqueue to queue %q: the message was enqueued, and its topic deleted: %w", q.name, err)
		}
		out[of[i]].ID = MessageID{topic.Partitions[at.Partition], at.Offset}
	}
	if later { // those are for the queue's id, and another process may have purged it long ago
		if err := q.redefine(ctx); errors.Is(err, ErrUnknownQueue) {
			return nil, fmt.Errorf("enqueue to queue %q: it was purged, or made anew, and has not got the messages: %w", q.name, err)
		} else if err != nil {
			return nil, fmt.Errorf("enqueue to queue %q: %w: the messages are durable, and whether the queue is the same is not known: %w", q.name, eventlog.ErrUnsure, err)
		}
	}
	return out, nil
}

// event is the record that a message becomes, and where it goes.
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
		m.Headers = append(m.Headers, batch.RecordHeader{Key: headerUnique, Value: []byte(q.uniqueKey(m.Unique))})
	}
	if m.Delay != 0 || !m.At.IsZero() {
		due, err := m.due(now)
		if err != nil {
			return publish.Event{}, err
		}
		if due > 0 {
			return q.owner.wheel.event(ctx, q, m, now, due)
		}
	}
	topic, err := q.topicFor(m.Priority)
	return publish.Event{Topic: topic.Name, TopicID: topic.ID, Key: m.Key, Value: m.Value, Headers: m.Headers, Time: m.Time}, err
}

// due is when the message may be claimed; 0: at once.
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

// uniqueKey is the key in the store that stands for a unique key: its hash, since it may be longer than a key in the store.
func (q *Queue) uniqueKey(unique string) string {
	sum := sha256.Sum256([]byte(unique))
	return uniquePrefix + q.id + "/" + hex.EncodeToString(sum[:16])
}

// enqueueUnique enqueues the messages whose unique keys are free, and takes these keys, in one change.
func (q *Queue) enqueueUnique(ctx context.Context, messages []NewMessage, events []publish.Event) ([]Enqueued, error) {
	fail := func(err error) ([]Enqueued, error) {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	for range changesMax {
		out := make([]Enqueued, len(messages))
		seen := make(map[string]int) // unique keys of this call, by the first message
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
					if out[i].ID, err = parseUnique(kv); err != nil {
						return fail(err)
					}
					out[i].Repeated = true
					continue
				}
			}
			fresh, of = append(fresh, events[i]), append(of, i)
		}
		var err error
		if len(fresh) > 0 {
			err = q.publishUnique(ctx, messages, fresh, of, out)
		}
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

// publishUnique appends messages and puts their unique keys in one entry. Each message is a batch of its own, so that the store can write
// its offset down.
func (q *Queue) publishUnique(ctx context.Context, messages []NewMessage, fresh []publish.Event, of []int, out []Enqueued) error {
	e := eventlog.Entry{Checks: []eventlog.Check{{Key: defKey(q.name), Version: q.def.Load().version}}}
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
			e.Checks = append(e.Checks, eventlog.Check{Key: key})
			e.Puts = append(e.Puts, eventlog.Put{Key: key, Version: 1, Value: fmt.Appendf(nil, "%d-", partitions[n]), AddBase: len(e.Batches)})
		}
	}
	outcome, err := q.log.Append(ctx, e)
	if err != nil {
		return err
	}
	for n, i := range of {
		out[i].ID = MessageID{partitions[n], outcome.Base[n]}
	}
	return nil
}

func parseUnique(kv eventlog.KeyValue) (MessageID, error) {
	id, err := ParseID(string(kv.Value))
	if err != nil {
		return id, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	return id, nil
}

// freesUnique is the put that frees a message's unique key, if it has one of this queue.
func (q *Queue) freesUnique(rec batch.Record) []eventlog.Put {
	key, has := header(rec, headerUnique)
	if !has || !strings.HasPrefix(key, uniquePrefix+q.id+"/") {
		return nil
	}
	return []eventlog.Put{{Key: key}}
}

// unique finds the put that frees the unique key of a message that is done. Only a queue with unique keys reads the message for it.
func (q *Queue) unique(ctx context.Context, g grant) ([]eventlog.Put, error) {
	if !q.def.Load().settings.Unique {
		return nil, nil
	}
	rec, err := q.records.read(ctx, g.partition, g.offset)
	if errors.Is(err, errNoRecord) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return q.freesUnique(rec), nil
}
