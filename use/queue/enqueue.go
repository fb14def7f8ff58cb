package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// NewMessage is a message to enqueue. Its bytes must not be changed any more once it was handed over.
type NewMessage struct {
	Key     []byte // nil: none. Messages of one key are in one partition, in order
	Value   []byte
	Headers []batch.RecordHeader
	Time    time.Time // zero: now
}

// Enqueue appends messages to the queue's topic, all of them or none, durably, and returns their ids, in their order. Single messages of many
// callers share batches and flushes. Errors are those of publish.Publisher.Publish.
func (q *Queue) Enqueue(ctx context.Context, messages ...NewMessage) ([]MessageID, error) {
	topic, err := q.partitions()
	if err != nil {
		return nil, err
	}
	events := make([]publish.Event, len(messages))
	for i, m := range messages {
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
		ids[i] = MessageID{topic.Partitions[at.Partition], at.Offset}
	}
	return ids, nil
}
