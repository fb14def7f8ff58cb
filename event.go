package weir

import (
	"time"

	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/deliver"
)

// Event is one event: what Publish takes, and what handlers get. To publish a delivered event to
// another topic, change only its Topic.
type Event struct {
	Topic   string
	Key     []byte // events with the same key go to the same partition, in the order of their publication; nil: any partition
	Value   []byte // nil: a tombstone, which is not the same as an empty value
	Headers []Header
	Time    time.Time // to the millisecond. Publish: zero means now. A delivered event: zero if the producer set no time

	// Partition and Offset are set in a delivered event. Publish ignores both, except that
	// Options.Partitioner may read Partition.
	Partition int32
	Offset    int64

	// Attempt counts how often this process delivered the event, from 1. It starts at 1 again after
	// a restart of the process, after a Seek, and when the partition is assigned anew, to another
	// process or to this one.
	Attempt int

	log  *Log               // the Log whose consumer delivered it
	from *deliver.Partition // the partition that delivered it
}

// Header is one header of an event. Keys may repeat, and their order is kept.
type Header struct {
	Key   string
	Value []byte // nil is not the same as empty
}

// Header returns the value of the last header with that key, and whether there is one.
func (e *Event) Header(key string) (value []byte, found bool) {
	for i := len(e.Headers) - 1; i >= 0; i-- {
		if e.Headers[i].Key == key {
			return e.Headers[i].Value, true
		}
	}
	return nil, false
}

// Placed is where a published event was stored.
type Placed struct {
	Partition int32
	Offset    int64
}

// TopicPartition is one partition of a topic. Partitions count from 0.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// Partitioner chooses one of the n partitions of an event's topic, from 0 to n-1. It may be called
// concurrently. If the result is outside that range, the event is refused with an error. e has what
// is published, and Event.Partition as the caller set it.
type Partitioner func(e *Event, n int) int32

// ByPartitionField is a Partitioner for publishers that choose the partition themselves: it returns
// Event.Partition.
func ByPartitionField(e *Event, _ int) int32 { return e.Partition }

// delivered is an event that a partition passes on.
func (l *Log) delivered(from *deliver.Partition, e *deliver.Event) Event {
	out := eventOf(from.Topic(), from.Number(), &e.Record)
	out.Attempt, out.log, out.from = e.Attempt, l, from
	return out
}

func eventOf(topic string, partition int32, r *batch.Record) Event {
	e := Event{Topic: topic, Partition: partition, Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: headersOut(r.Headers)}
	if r.Timestamp != batch.NoTimestamp {
		e.Time = time.UnixMilli(r.Timestamp)
	}
	return e
}

// recordOf is an event as a record of its topic.
func recordOf(e *Event) batch.Record {
	r := batch.Record{Offset: e.Offset, Timestamp: batch.NoTimestamp, Key: e.Key, Value: e.Value, Headers: headersIn(e.Headers)}
	if !e.Time.IsZero() {
		r.Timestamp = e.Time.UnixMilli()
	}
	return r
}

// headersIn converts headers to those of package batch; nil stays nil.
func headersIn(headers []Header) []batch.RecordHeader {
	if headers == nil {
		return nil
	}
	in := make([]batch.RecordHeader, 0, len(headers))
	for _, h := range headers {
		in = append(in, batch.RecordHeader(h))
	}
	return in
}

// headersOut converts headers of package batch to those of this package; nil stays nil.
func headersOut(headers []batch.RecordHeader) []Header {
	if headers == nil {
		return nil
	}
	out := make([]Header, 0, len(headers))
	for _, h := range headers {
		out = append(out, Header(h))
	}
	return out
}
