package queue

import (
	"context"
	"fmt"
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

// Enqueue appends messages to the queue's topic, all of them or none, durably, and returns their ids, in their order. Single messages of many
// callers share batches and flushes. Errors are those of publish.Publisher.Publish.
func (q *Queue) Enqueue(ctx context.Context, messages ...NewMessage) ([]MessageID, error) {
	topic, err := q.partitions()
	if err != nil {
		return nil, err
	}
	var now Time
	events := make([]publish.Event, len(messages))
	for i, m := range messages {
		if m.Delay != 0 || !m.At.IsZero() {
			if now == 0 {
				if _, now, err = q.owner.clock.now(ctx); err != nil {
					return nil, err
				}
			}
			due, err := m.due(now)
			if err != nil {
				return nil, fmt.Errorf("enqueue message %d of %d to queue %q: %w", i, len(messages), q.name, err)
			}
			if due > 0 {
				if events[i], err = q.owner.wheel.event(ctx, q, m, now, due); err != nil {
					return nil, err
				}
				continue
			}
		}
		events[i] = publish.Event{Topic: topic.Name, TopicID: topic.ID, Key: m.Key, Value: m.Value, Headers: m.Headers, Time: m.Time}
	}
	placed, err := q.owner.publisher.Publish(ctx, events...)
	if err != nil {
		return nil, fmt.Errorf("enqueue to queue %q: %w", q.name, err)
	}
	if topic, err = q.partitions(); err != nil { // it may have grown
		return nil, err
	}
	ids := make([]MessageID, len(placed))
	for i, at := range placed {
		of := topic
		if events[i].TopicID != topic.ID {
			if of, err = q.log.TopicByID(events[i].TopicID); err != nil {
				return nil, err
			}
		}
		ids[i] = MessageID{of.Partitions[at.Partition], at.Offset}
	}
	return ids, nil
}
