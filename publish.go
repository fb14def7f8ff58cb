package weir

import (
	"context"

	"github.com/weir-log/weir/use/publish"
)

// Publish makes the events durable, all of them or none, and returns where each was stored, in their order. Events of one call that
// go to the same partition stay neighbours there. Single events of many callers share one store call, so there is no need to collect
// them. The caller must not change the events' bytes afterwards.
//
// ErrUnknownTopic, ErrTooLarge and *InvalidError refuse the events for good; ErrUnavailable and ErrClosed mean that certainly
// nothing was published, ErrUnsure that perhaps it was.
func (l *Log) Publish(ctx context.Context, events ...Event) ([]Placed, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "publish %d events", len(events))
	}
	var one [1]publish.Event // a single event is what most callers have
	return answer(l.publisher.Publish(ctx, l.outgoing(one[:0], events)...))
}

// PublishOnce is Publish under an idempotency key, which makes it safe to retry. For Options.IdempotencyAge a repetition with the
// same events, from any process, publishes nothing and returns the first call's result, with repeated true. With other events it is
// ErrKeyReused, with more than 10,000 ErrTooLarge. After ErrUnsure call it again: that returns what happened, or publishes.
func (l *Log) PublishOnce(ctx context.Context, key string, events ...Event) (placed []Placed, repeated bool, err error) {
	if err := l.usable(); err != nil {
		return nil, false, wrap(err, "publish %d events once", len(events))
	}
	at, repeated, err := l.publisher.PublishOnce(ctx, key, l.outgoing(nil, events)...)
	placed, err = answer(at, err)
	return placed, repeated, err
}

// outgoing appends what the publisher takes for events to buf.
func (l *Log) outgoing(buf []publish.Event, events []Event) []publish.Event {
	for i := range events {
		e := &events[i]
		out := publish.Event{Topic: e.Topic, Key: e.Key, Value: e.Value, Headers: e.Headers, Time: e.Time}
		if l.opts.Partitioner != nil {
			out.Wish = e.Partition // else it is ignored, and so not part of the event
		}
		buf = append(buf, out)
	}
	return buf
}

// adapted is the partitioner as the publisher calls it.
func (p Partitioner) adapted() publish.Partitioner {
	if p == nil {
		return nil
	}
	return func(e *publish.Event, n int) int32 {
		return p(&Event{Topic: e.Topic, Partition: e.Wish, Key: e.Key, Value: e.Value, Headers: e.Headers, Time: e.Time}, n)
	}
}

func answer(at []publish.Placed, err error) ([]Placed, error) {
	if err != nil {
		return nil, err
	}
	placed := make([]Placed, len(at))
	for i, p := range at {
		placed[i] = Placed{Partition: p.Partition, Offset: int64(p.Offset)}
	}
	return placed, nil
}
