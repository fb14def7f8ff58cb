package cli

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog/batch"
)

// lastOfClient is the last timestamp, in milliseconds, that kgo can send: it counts nanoseconds in
// an int64 (sink.go, UnixNano).
const lastOfClient = math.MaxInt64 / 1_000_000

// late sends a record that is later than lastOfClient, in a batch and a request of its own, after
// all that were sent before it.
func (s *sender) late(r *kgo.Record) error {
	if err := s.client.Flush(context.Background()); err != nil { // the sender's patience bounds it
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.wait)
	defer cancel()
	topics, err := kadm.NewClient(s.client).ListTopicsWithInternal(ctx, s.topic)
	if err != nil {
		return err
	}
	topic := topics[s.topic]
	if topic.Err != nil {
		return topic.Err
	}
	if r.Partition == anyPartition {
		byKey := kgo.StickyKeyPartitioner(nil).ForTopic(s.topic)
		r.Partition = int32(byKey.Partition(r, len(topic.Partitions)))
	}
	partition, is := topic.Partitions[r.Partition]
	if !is {
		return fmt.Errorf("the topic has no partition %d; it has %d, numbered from 0", r.Partition, len(topic.Partitions))
	}
	record := batch.Record{Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		record.Headers = append(record.Headers, batch.RecordHeader{Key: h.Key, Value: h.Value})
	}
	sealed, err := batch.Seal([]batch.Record{record}, s.codec)
	if err != nil {
		return err
	}
	ask := kmsg.NewPtrProduceRequest()
	ask.Acks, ask.TimeoutMillis = -1, int32(min(s.wait.Milliseconds(), math.MaxInt32))
	ask.Topics = []kmsg.ProduceRequestTopic{{Topic: s.topic, TopicID: topic.ID,
		Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: r.Partition, Records: sealed}}}}
	answer, err := s.client.Broker(int(partition.Leader)).Request(ctx, ask)
	if err != nil {
		return err
	}
	for _, t := range answer.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			return kerr.ErrorForCode(p.ErrorCode)
		}
	}
	return errors.New("the broker's answer names no partition")
}

var batchCodecs = map[string]batch.Codec{
	"none": batch.None, "gzip": batch.Gzip, "snappy": batch.Snappy, "lz4": batch.LZ4, "zstd": batch.Zstd,
}
