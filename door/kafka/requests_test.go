package kafka_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// Short forms of requests that many tests send.

func (b *broker) createTopic(name string, partitions int, config map[string]string) eventlog.Topic {
	b.t.Helper()
	topic, err := b.log.CreateTopic(b.t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions, Config: config, Internal: eventlog.InternalTopic(name)})
	if err != nil {
		b.t.Fatal(err)
	}
	return topic
}

func sealed(t testing.TB, codec batch.Codec, records ...batch.Record) []byte {
	t.Helper()
	raw, err := batch.Seal(records, codec)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func value(v string) batch.Record {
	return batch.Record{Value: []byte(v), Timestamp: 1_700_000_000_000}
}

// valid gives a batch that was changed its CRC.
func valid(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func produceRequest(topic string, partition int32, records []byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 12, -1, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, records
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (b *broker) produce(topic string, partition int32, records []byte) kmsg.ProduceResponseTopicPartition {
	b.t.Helper()
	return ask[*kmsg.ProduceResponse](b, produceRequest(topic, partition, records)).Topics[0].Partitions[0]
}

func (b *broker) mustProduce(topic string, partition int32, records []byte) int64 {
	b.t.Helper()
	p := b.produce(topic, partition, records)
	if p.ErrorCode != 0 {
		b.t.Fatalf("produce to %s/%d: %v %v", topic, partition, kerr.ErrorForCode(p.ErrorCode), text(p.ErrorMessage))
	}
	return p.BaseOffset
}

func fetchRequest(topic string, partition int32, offset int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.MinBytes, req.SessionEpoch = 12, 1<<20, 1, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, offset, 1<<20, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func (b *broker) fetch(topic string, partition int32, offset int64) kmsg.FetchResponseTopicPartition {
	b.t.Helper()
	return ask[*kmsg.FetchResponse](b, fetchRequest(topic, partition, offset)).Topics[0].Partitions[0]
}

// end is a partition's next offset, as the store has it.
func (b *broker) end(topic string, partition int) eventlog.Offset {
	b.t.Helper()
	t, err := b.log.Topic(context.Background(), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	got, err := b.log.Bounds(context.Background(), t.Partitions[partition])
	if err != nil {
		b.t.Fatal(err)
	}
	return got[0].Bounds.Next
}

func text(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}

func wantCode(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	code := int16(0)
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Errorf("%s: %v, expected %v", what, kerr.ErrorForCode(got), want)
	}
}
