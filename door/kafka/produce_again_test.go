package kafka_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
)

// A small request that names one partition many times must not decompress a batch for each mention.
func TestAPartitionThatAProduceRequestNamesAgainIsRefusedAndNotAppended(t *testing.T) {
	const times = 100
	b := start(t, kafka.Config{})
	b.createTopic("t", 2, nil)
	raw := sealed(t, batch.Gzip, batch.Record{Value: make([]byte, 1<<20)})
	req := produceRequest("t", 0, raw)
	for range times - 1 {
		p := req.Topics[0].Partitions[0]
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	req.Topics = append(req.Topics, produceRequest("t", 0, raw).Topics[0], produceRequest("t", 1, raw).Topics[0])
	got := ask[*kmsg.ProduceResponse](b, req)
	for _, p := range append(got.Topics[0].Partitions, got.Topics[1].Partitions...) {
		wantCode(t, "a partition named again: "+text(p.ErrorMessage), p.ErrorCode, kerr.InvalidRequest)
	}
	wantCode(t, "the other partition", got.Topics[2].Partitions[0].ErrorCode, nil)
	if base := b.mustProduce("t", 0, raw); base != 0 {
		t.Errorf("the next batch has offset %d: %d batches of a refused request were appended", base, base)
	}
}
