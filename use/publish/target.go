package publish

import (
	"context"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// target is where an event goes, and the record that it becomes.
type target struct {
	topic  eventlog.Topic
	number int32 // the number of the partition in the topic
	record batch.Record
	size   int // the size of a batch with only this record
}

// target chooses an event's partition and checks the event against the limits.
func (p *Publisher) target(ctx context.Context, e *Event) (target, error) {
	if eventlog.InternalTopic(e.Topic) && !e.Internal {
		return target{}, &eventlog.InvalidError{What: "topic", Value: e.Topic, Why: "it is internal, and clients may not publish to it; choose a name that does not begin with __weir_"}
	}
	topic, err := p.log.Topic(ctx, e.Topic)
	if err != nil {
		return target{}, err
	}
	if e.TopicID != (eventlog.TopicID{}) && e.TopicID != topic.ID {
		return target{}, fmt.Errorf("%w: %q with id %v: it was deleted, and another topic has its name", eventlog.ErrUnknownTopic, e.Topic, e.TopicID)
	}
	if topic.Writer != "" {
		return target{}, &eventlog.InvalidError{What: "topic", Value: e.Topic, Why: fmt.Sprintf("only %s append to it: publish to another topic, or append to a stream", topic.Writer)}
	}
	t := target{topic: topic}
	if t.record, err = p.record(ctx, e); err != nil {
		return target{}, err
	}
	if err := topic.CheckKey(&t.record); err != nil {
		return target{}, err
	}
	t.size = batch.SealedSize(&t.record)
	if limit := topic.MaxMessageBytes(); t.size > limit {
		return target{}, fmt.Errorf("%w: the event makes a batch of %d bytes, but max.message.bytes of topic %q is %d",
			eventlog.ErrTooLarge, t.size, topic.Name, limit)
	}
	if err := eventlog.CheckDecoded(&t.record); err != nil {
		return target{}, err
	}
	t.number, err = p.choose(e, topic)
	return t, err
}

// choose returns the number of the partition.
func (p *Publisher) choose(e *Event, topic eventlog.Topic) (int32, error) {
	n := len(topic.Partitions)
	var number int32
	var by string
	switch {
	case e.Partition != nil:
		number, by = *e.Partition, "the event asks for it"
	case p.cfg.Partitioner != nil:
		number, by = ask(p.cfg.Partitioner, *e, n), "the partitioner returned it"
	default:
		return Default(e, n), nil
	}
	if number < 0 || int(number) >= n {
		return 0, &eventlog.InvalidError{What: "partition", Value: strconv.Itoa(int(number)),
			Why: fmt.Sprintf("%s, but topic %q has %d partitions, numbered from 0", by, topic.Name, n)}
	}
	return number, nil
}

// ask shows a copy of the event to a partitioner, which may keep it: so the event itself need not
// be on the heap.
func ask(partitioner Partitioner, e Event, n int) int32 { return partitioner(&e, n) }

// record returns the event's record.
func (p *Publisher) record(ctx context.Context, e *Event) (batch.Record, error) {
	at := e.Time
	if at.IsZero() {
		at = time.Now()
	}
	r := batch.Record{Timestamp: at.UnixMilli(), Key: e.Key, Value: e.Value, Headers: e.Headers}
	if r.Timestamp < 0 {
		return r, &eventlog.InvalidError{What: "time", Value: at.Format(time.RFC3339Nano), Why: "it is before 1970, when Kafka's timestamps begin"}
	}
	traced := false
	for i := range e.Headers {
		key := e.Headers[i].Key
		if !utf8.ValidString(key) {
			return r, &eventlog.InvalidError{What: "header name", Value: key, Why: "it is not UTF-8"}
		}
		traced = traced || key == eventlog.TraceParent || key == eventlog.TraceState // with a second tracestate neither would count
	}
	if !traced {
		r.Headers = withHeaders(r.Headers, p.cfg.Tracer.Inject(ctx))
	}
	return r, nil
}

// withHeaders never writes into the spare capacity of the caller's slice.
func withHeaders(headers, more []batch.RecordHeader) []batch.RecordHeader {
	if len(more) == 0 {
		return headers
	}
	return append(headers[:len(headers):len(headers)], more...)
}
