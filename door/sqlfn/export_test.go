package sqlfn

import (
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
)

// Fill appends 1000 records to each partition of a topic. They cannot be read.
func Fill(t testing.TB, log *eventlog.Log, topic eventlog.Topic) {
	t.Helper()
	var e eventlog.Entry
	for _, p := range topic.Partitions {
		e.Batches = append(e.Batches, eventlog.Batch{Partition: p, Records: 1000, Bytes: []byte("records")})
	}
	if _, err := log.Append(t.Context(), e); err != nil {
		t.Fatal(err)
	}
}

// WithPartitioner returns the configuration with another partitioner.
func (c Config) WithPartitioner(p publish.Partitioner) Config {
	c.partitioner = p
	return c
}
