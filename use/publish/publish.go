package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Event is one record to publish to a topic. Its bytes must not be changed after it was passed to a
// Publisher.
type Event struct {
	Topic     string
	TopicID   eventlog.TopicID // the id of the topic that is meant; zero: any topic that has the name
	Partition *int32           // nil: chosen by the partitioner
	Wish      int32            // for a Config.Partitioner; Default ignores it
	Key       []byte           // nil: none
	Value     []byte           // nil: a tombstone
	Headers   []batch.RecordHeader
	Time      time.Time // zero: now
	Internal  bool      // Topic may be one of weir's own (eventlog.InternalTopic): never set for a client's request
}

// Placed is where an event was stored.
type Placed struct {
	Partition int32
	Offset    eventlog.Offset
}

// Config sets a Publisher up. The zero value of every field means its default.
type Config struct {
	Partitioner    Partitioner     // default: Default
	IdempotencyAge time.Duration   // how long a repetition under an idempotency key is recognised; default 24 h
	Logger         *slog.Logger    // default: slog.Default()
	Tracer         eventlog.Tracer // default: no spans
}

// Publisher publishes events to a log. Methods may be called concurrently.
type Publisher struct {
	log *eventlog.Log
	cfg Config
}

// New returns a Publisher for a log. It publishes while the log runs; its own Run only forgets old
// idempotency keys.
func New(log *eventlog.Log, cfg Config) *Publisher {
	if cfg.IdempotencyAge <= 0 {
		cfg.IdempotencyAge = 24 * time.Hour
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	cfg.Tracer = eventlog.Traced(cfg.Tracer)
	return &Publisher{log: log, cfg: cfg}
}

// Publish makes all events durable, or none, and returns where each is stored, in their order.
// Events of one call for the same partition get consecutive offsets. The single events of many
// callers share batches and flushes.
//
// These errors refuse the events for good: eventlog.ErrUnknownTopic, eventlog.ErrTooLarge (the
// batch of one event, before compression, exceeds the topic's max.message.bytes, or all events of
// the call exceed 16 MiB), *eventlog.InvalidError. eventlog.ErrUnavailable and eventlog.ErrClosed:
// certainly not published, and trying again may work. eventlog.ErrUnsure: they may have been
// published.
//
// If ctx has a span, each record gets it in its headers, unless its event has a traceparent or a
// tracestate already.
func (p *Publisher) Publish(ctx context.Context, events ...Event) (placed []Placed, err error) {
	ctx, end := p.cfg.Tracer.Start(ctx, "publish", p.spanOf(events))
	defer func() { end(err) }()
	placed, err = p.publish(ctx, events)
	if p.stale(ctx, err) {
		placed, err = p.publish(ctx, events)
	}
	return placed, err
}

// stale reports whether events were refused because another process deleted their topic, or created
// it again. If so, it has read the catalog again.
func (p *Publisher) stale(ctx context.Context, err error) bool {
	return errors.Is(err, eventlog.ErrNoPartition) && p.log.RefreshTopics(ctx) == nil
}

func (p *Publisher) publish(ctx context.Context, events []Event) ([]Placed, error) {
	if len(events) == 1 && !events[0].epoch() {
		return p.publishOne(ctx, &events[0])
	}
	pl, err := p.plan(ctx, events)
	if err != nil {
		return nil, err
	}
	if lane, ok := pl.loose(); ok {
		base, err := p.log.Publish(ctx, lane.partition, lane.records...)
		if err != nil {
			return nil, err
		}
		return pl.placed([]eventlog.Offset{base}), nil
	}
	e, first, err := pl.entry()
	if err != nil {
		return nil, err
	}
	out, err := p.log.Append(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("publish %d events to %d partitions: %w", len(events), len(pl.batches), err)
	}
	return pl.placed(bases(out, first)), nil
}

// Choose returns the topic and the partition that Publish would choose for the event now, or the
// error with which it would refuse the event for good. It publishes nothing.
func (p *Publisher) Choose(ctx context.Context, e *Event) (topic eventlog.Topic, partition int32, err error) {
	t, err := p.target(ctx, e)
	return t.topic, t.number, err
}

// Within is the index of an event's batch among several, and the index of its record in that batch.
type Within struct{ Batch, Record int }

// PublishWith is Publish, but the caller's commit appends the batches, together with the caller's
// own changes, all or none; in says where each event is in the batches. commit is called again if a
// topic was deleted and created again meanwhile.
func (p *Publisher) PublishWith(ctx context.Context, commit func(ctx context.Context, batches []eventlog.Batch, in []Within) error, events ...Event) (err error) {
	ctx, end := p.cfg.Tracer.Start(ctx, "publish", p.spanOf(events))
	defer func() { end(err) }()
	err = p.publishWith(ctx, commit, events)
	if p.stale(ctx, err) {
		err = p.publishWith(ctx, commit, events)
	}
	return err
}

func (p *Publisher) publishWith(ctx context.Context, commit func(context.Context, []eventlog.Batch, []Within) error, events []Event) error {
	pl, err := p.plan(ctx, events)
	if err != nil {
		return err
	}
	e, first, err := pl.entry()
	if err != nil {
		return err
	}
	return commit(ctx, e.Batches, pl.within(e.Batches, first))
}

// publishOne is publish for a single event, the most frequent case: it costs no more than
// eventlog.Log.Publish.
func (p *Publisher) publishOne(ctx context.Context, e *Event) ([]Placed, error) {
	t, err := p.target(ctx, e)
	if err != nil {
		return nil, fmt.Errorf("publish to topic %q: %w", e.Topic, err)
	}
	base, err := p.log.Publish(ctx, t.topic.Partitions[t.number], t.record)
	if err != nil {
		return nil, err
	}
	return []Placed{{Partition: t.number, Offset: base}}, nil
}

// epoch reports whether the event's time is the first millisecond of 1970. A record that is passed
// to Log.Publish cannot have that time, because its timestamp 0 means now.
func (e *Event) epoch() bool { return !e.Time.IsZero() && e.Time.UnixMilli() == 0 }

// spanOf describes events for their span, if there will be one. The topic is that of the first.
func (p *Publisher) spanOf(events []Event) eventlog.SpanInfo {
	if eventlog.Untraced(p.cfg.Tracer) {
		return eventlog.SpanInfo{}
	}
	info := eventlog.SpanInfo{Records: len(events)}
	if len(events) > 0 {
		info.Topic = events[0].Topic
	}
	for i := range events {
		info.Link(events[i].Headers)
	}
	return info
}
