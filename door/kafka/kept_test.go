package kafka_test

import (
	"runtime"
	"testing"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// A connection that had a large answer, and stays, holds no more than one that had none.
func TestAConnectionKeepsNothingOfALargeAnswer(t *testing.T) {
	const (
		clients = 40
		batches = 2000
		each    = 24 << 10 // goroutines and the read buffer, of a connection and of its client
	)
	b := start(t, kafka.Config{})
	topic := b.createTopic("t", 1, nil)
	raw := sealed(t, batch.None, value(string(make([]byte, 2<<10))))
	var entry eventlog.Entry
	for range batches {
		entry.Batches = append(entry.Batches, eventlog.Batch{Partition: topic.Partitions[0], Records: 1, Bytes: raw})
	}
	if _, err := b.log.Append(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	get := func() {
		w := b.dial()
		req := fetchRequest("t", 0, 0)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = 16<<20, 16<<20
		w.send(frame(req, 1))
		w.receive(req, 1)
	}
	get()
	runtime.GC() // twice with liveBytes: what a pool holds goes with the second
	before := liveBytes()
	for range clients {
		get()
	}
	runtime.GC()
	if held := (liveBytes() - before) / clients; held > each {
		t.Errorf("after its answer of %d batches a connection holds %d bytes, the limit is %d", batches, held, each)
	}
}
