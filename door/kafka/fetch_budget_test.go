package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// fetched is what a fetch answers: bytes of each partition that is in the answer, in order.
func (b *broker) fetched(req *kmsg.FetchRequest) (sizes []int, total int) {
	b.t.Helper()
	resp := ask[*kmsg.FetchResponse](b, req)
	for _, rt := range resp.Topics {
		for _, rp := range rt.Partitions {
			if rp.ErrorCode != 0 {
				b.t.Errorf("partition %d: error %d", rp.Partition, rp.ErrorCode)
			}
			sizes = append(sizes, len(rp.RecordBatches))
			total += len(rp.RecordBatches)
		}
	}
	return sizes, total
}

// A partition mentioned many times is answered once, with no more bytes than the request allows, from the tail and from the store.
func TestAFetchThatMentionsAPartitionManyTimesIsAnsweredOnce(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	b.createTopic("t", 1, nil)
	for range 20 {
		b.mustProduce("t", 0, sealed(t, batch.None, batch.Record{Value: make([]byte, 100<<10)}))
	}
	for _, b := range []*broker{b, startOn(t, store, kafka.Config{})} { // the second has nothing in memory
		req := fetchRequest("t", 0, 0)
		req.MaxBytes = 1 << 20
		one := req.Topics[0].Partitions[0]
		one.PartitionMaxBytes = 1 << 20
		req.Topics[0].Partitions = nil
		for i := range 200 {
			one.FetchOffset = int64(i % 20)
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
		}
		req.Topics = append(req.Topics, req.Topics[0])
		if sizes, total := b.fetched(req); len(sizes) != 1 || total == 0 || total > 1<<20 {
			t.Errorf("400 mentions are answered with %d partitions and %d bytes", len(sizes), total)
		}
	}
}

// KIP-74: the first partition that has anything brings its first batch however large, and no other partition does.
// Clients ask for partitions in turn, so each gets on.
func TestOnlyOnePartitionBringsABatchLargerThanAllowed(t *testing.T) {
	store := memory.New()
	b := startOn(t, store, kafka.Config{})
	b.createTopic("t", 4, nil)
	for n := range int32(3) {
		b.mustProduce("t", n+1, sealed(t, batch.None, batch.Record{Value: make([]byte, 200<<10)}))
	}
	for _, b := range []*broker{b, startOn(t, store, kafka.Config{})} {
		for first := range int32(4) {
			req := fetchRequest("t", 0, 0)
			req.MaxBytes = 100_000
			one := req.Topics[0].Partitions[0]
			one.PartitionMaxBytes = 1000
			req.Topics[0].Partitions = nil
			for i := range int32(4) {
				one.Partition = (first + i) % 4
				req.Topics[0].Partitions = append(req.Topics[0].Partitions, one)
			}
			sizes, total := b.fetched(req)
			with := 0
			if first == 0 { // which is empty
				with = 1
			}
			if len(sizes) != 4 || sizes[with] < 200<<10 || total != sizes[with] {
				t.Errorf("asked from partition %d on: %v bytes", first, sizes)
			}
		}
	}
}
