package weir

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-log/weir/use/publish"
)

// Publish makes the events durable, all of them or none, and returns where each was stored, in
// their order. Events of one call that go to the same partition get consecutive offsets there.
// Concurrent calls share one store call, so there is no need to collect events. The caller must not
// change the events' bytes afterwards.
//
// After ErrUnknownTopic, ErrTooLarge and *InvalidError trying again does not help. ErrUnavailable
// and ErrClosed mean that certainly nothing was published, ErrUnsure that the events may have been
// published.
func (l *Log) Publish(ctx context.Context, events ...Event) ([]Placed, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "publish %d events", len(events))
	}
	var one [1]publish.Event // saves an allocation: most calls have one event
	return answer(l.publisher.Publish(ctx, l.outgoing(one[:0], events)...))
}

// PublishOnce is Publish under an idempotency key, which makes it safe to retry. For
// Options.IdempotencyAge a repetition with the same events, from any process, publishes nothing and
// returns the first call's result, with repeated true. With other events it returns ErrKeyReused.
// For more than 10,000 events it returns ErrTooLarge. After ErrUnsure call it again: it returns the
// result, or publishes.
func (l *Log) PublishOnce(ctx context.Context, key string, events ...Event) (placed []Placed, repeated bool, err error) {
	if err := l.usable(); err != nil {
		return nil, false, wrap(err, "publish %d events once", len(events))
	}
	at, repeated, err := l.publisher.PublishOnce(ctx, key, l.outgoing(nil, events)...)
	placed, err = answer(at, err)
	return placed, repeated, err
}

// outgoing converts events to those of the publisher, and appends them to buf.
func (l *Log) outgoing(buf []publish.Event, events []Event) []publish.Event {
	for i := range events {
		e := &events[i]
		out := publish.Event{Topic: e.Topic, Key: e.Key, Value: e.Value, Headers: headersIn(e.Headers), Time: e.Time}
		if l.opts.Partitioner != nil {
			out.Wish = e.Partition // without a Partitioner it is ignored
		}
		buf = append(buf, out)
	}
	return buf
}

// adapted wraps the partitioner so that the publisher can call it.
func (p Partitioner) adapted() publish.Partitioner {
	if p == nil {
		return nil
	}
	return func(e *publish.Event, n int) int32 {
		return p(&Event{Topic: e.Topic, Partition: e.Wish, Key: e.Key, Value: e.Value, Headers: headersOut(e.Headers), Time: e.Time}, n)
	}
}

func answer(at []publish.Placed, err error) ([]Placed, error) {
	if errors.Is(err, ErrUnknownTopic) {
		err = fmt.Errorf("%w: create it with EnsureTopic or weir topic create", err)
	}
	if err != nil {
		return nil, err
	}
	placed := make([]Placed, len(at))
	for i, p := range at {
		placed[i] = Placed{Partition: p.Partition, Offset: int64(p.Offset)}
	}
	return placed, nil
}
