package weir

import (
	"time"

	"github.com/weir-log/weir/eventlog/batch"
)

// Event is one event: what Publish takes, and what handlers get. An event that was delivered can be published
// again as it is, under another topic.
type Event struct {
	Topic   string
	Key     []byte // events of one key stay in one partition, in the order of their publication; nil: any partition
	Value   []byte // nil: a tombstone, which is not the same as an empty value
	Headers []Header
	Time    time.Time // in milliseconds; zero for Publish: now. Delivered it is zero where the producer gave none

	// Partition and Offset are those of a delivered event. Publish ignores both, except that Options.Partitioner may read Partition.
	Partition int32
	Offset    int64

	// Attempt counts how often this process delivered the event, from 1. After a restart, or when the partition was
	// moved to another process, it begins anew.
	Attempt int

	from *partition // which consumer's partition delivered it
}

// Header is one header of an event. Keys may repeat, and their order is kept. A nil value is not the same as an empty one.
type Header = batch.RecordHeader

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

// Partitioner chooses one of the n partitions of an event's topic, from 0 to n-1. It may be called by many goroutines at once.
// An answer outside that range refuses the event with an error. It is shown what is published, and Event.Partition as the caller set it.
type Partitioner func(e *Event, n int) int32

// ByPartitionField is a Partitioner for publishers that choose by themselves: it returns Event.Partition.
func ByPartitionField(e *Event, _ int) int32 { return e.Partition }
