package kafka_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

func createRequest(name string, partitions int32, replication int16) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 7
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, partitions, replication
	req.Topics = append(req.Topics, t)
	return req
}

func (b *broker) create(req *kmsg.CreateTopicsRequest) kmsg.CreateTopicsResponseTopic {
	b.t.Helper()
	return ask[*kmsg.CreateTopicsResponse](b, req).Topics[0]
}

func metadataRequest(names ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation, req.Topics = 12, true, []kmsg.MetadataRequestTopic{}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestTopicNamesFollowKafkasRule(t *testing.T) {
	b := start(t, kafka.Config{})
	for _, name := range []string{
		"", ".", "..", strings.Repeat("x", 250), "a/b", "../../etc/passwd", "a\x00b", "a\nb", "\x1b[31mred", "'; DROP TABLE x;--", `"`, "`", "%", "☂", "\xff\xfe", "a b", "a:b", strings.Repeat("x", 30_000),
	} {
		made := b.create(createRequest(name, 1, 1))
		wantCode(t, fmt.Sprintf("create %.20q", name), made.ErrorCode, kerr.InvalidTopicException)
		if len(text(made.ErrorMessage)) < 10 || len(text(made.ErrorMessage)) > 500 {
			t.Errorf("create %.20q: message %q", name, text(made.ErrorMessage))
		}
		meta := ask[*kmsg.MetadataResponse](b, metadataRequest(name)).Topics[0]
		wantCode(t, fmt.Sprintf("metadata of %.20q", name), meta.ErrorCode, kerr.InvalidTopicException)
		wantCode(t, fmt.Sprintf("produce to %.20q", name), b.produce(name, 0, sealed(t, batch.None, value("v"))).ErrorCode, kerr.UnknownTopicOrPartition)
	}
	if n := len(b.log.Topics()); n != 0 {
		t.Errorf("%d topics were created", n)
	}
	for _, name := range []string{strings.Repeat("x", 249), "Foo", "foo", "_", "-", "...", strings.Repeat("y", 63) + "1", strings.Repeat("y", 63) + "2", "a.b"} {
		wantCode(t, "create "+name, b.create(createRequest(name, 1, 1)).ErrorCode, nil)
	}
	for _, name := range []string{"a_b", "a.b"} {
		want := kerr.InvalidTopicException // metrics could not tell them apart
		if name == "a.b" {
			want = kerr.TopicAlreadyExists
		}
		wantCode(t, "create "+name, b.create(createRequest(name, 1, 1)).ErrorCode, want)
	}
	wantCode(t, "metadata of a_b", ask[*kmsg.MetadataResponse](b, metadataRequest("a_b")).Topics[0].ErrorCode, kerr.InvalidTopicException)
}

func TestPartitionsThatCannotBe(t *testing.T) {
	b := start(t, kafka.Config{Partitions: 3})
	for _, c := range []struct {
		partitions  int32
		replication int16
		want        *kerr.Error
	}{
		{0, 1, kerr.InvalidPartitions},
		{-5, 1, kerr.InvalidPartitions},
		{1_000_000, 1, kerr.InvalidPartitions},
		{math.MaxInt32, 1, kerr.InvalidPartitions},
		{1, 3, kerr.InvalidReplicationFactor},
		{1, 0, kerr.InvalidReplicationFactor},
		{1, -2, kerr.InvalidReplicationFactor},
		{-1, -1, nil},
		{2, -1, nil},
	} {
		name := fmt.Sprintf("t%d.%d", c.partitions, c.replication)
		made := b.create(createRequest(name, c.partitions, c.replication))
		wantCode(t, name, made.ErrorCode, c.want)
		if c.want != nil && text(made.ErrorMessage) == "null" {
			t.Errorf("%s: no message", name)
		}
		if c.partitions == -1 && made.NumPartitions != 3 {
			t.Errorf("%s: %d partitions, expected the default", name, made.NumPartitions)
		}
	}
	b.createTopic("t", 2, nil)
	for _, number := range []int32{-1, 2, math.MaxInt32, math.MinInt32} {
		wantCode(t, fmt.Sprintf("produce to partition %d", number), b.produce("t", number, sealed(t, batch.None, value("v"))).ErrorCode, kerr.UnknownTopicOrPartition)
		wantCode(t, fmt.Sprintf("fetch from partition %d", number), b.fetch("t", number, 0).ErrorCode, kerr.UnknownTopicOrPartition)
	}
}

func TestAssignmentsMustNameTheOneBroker(t *testing.T) {
	b := start(t, kafka.Config{})
	assign := func(replicas ...[]int32) *kmsg.CreateTopicsRequest {
		req := createRequest("t", -1, -1)
		for i, r := range replicas {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), r
			req.Topics[0].ReplicaAssignment = append(req.Topics[0].ReplicaAssignment, a)
		}
		return req
	}
	one := []int32{1}
	wantCode(t, "another broker", b.create(assign([]int32{2})).ErrorCode, kerr.InvalidReplicaAssignment)
	wantCode(t, "two replicas", b.create(assign([]int32{1, 2})).ErrorCode, kerr.InvalidReplicaAssignment)
	wantCode(t, "no replicas", b.create(assign([]int32{})).ErrorCode, kerr.InvalidReplicaAssignment)
	gap := assign(one, one)
	gap.Topics[0].ReplicaAssignment[1].Partition = 2
	wantCode(t, "a gap", b.create(gap).ErrorCode, kerr.InvalidReplicaAssignment)
	twice := assign(one, one)
	twice.Topics[0].ReplicaAssignment[1].Partition = 0
	wantCode(t, "a partition twice", b.create(twice).ErrorCode, kerr.InvalidReplicaAssignment)
	both := assign(one)
	both.Topics[0].NumPartitions = 1
	wantCode(t, "with a number as well", b.create(both).ErrorCode, kerr.InvalidRequest)
	made := b.create(assign(one, one))
	wantCode(t, "all on this broker", made.ErrorCode, nil)
	if made.NumPartitions != 2 {
		t.Errorf("%d partitions", made.NumPartitions)
	}
}

func TestFetchesBeyondReason(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 1, nil)
	raw := sealed(t, batch.None, value("one"), value("two"))
	for range 3 {
		b.mustProduce("t", 0, append([]byte(nil), raw...))
	}
	b.deleteRecords("t", 0, 2)
	for offset, want := range map[int64]*kerr.Error{
		-1: kerr.OffsetOutOfRange, math.MinInt64: kerr.OffsetOutOfRange, 0: kerr.OffsetOutOfRange, 1: kerr.OffsetOutOfRange, 2: nil, 6: nil, 7: kerr.OffsetOutOfRange, math.MaxInt64: kerr.OffsetOutOfRange,
	} {
		p := b.fetch("t", 0, offset)
		wantCode(t, fmt.Sprintf("offset %d", offset), p.ErrorCode, want)
	}
	for _, limit := range []int32{0, -1, math.MinInt32, math.MaxInt32} {
		req := fetchRequest("t", 0, 2)
		req.MaxBytes, req.Topics[0].Partitions[0].PartitionMaxBytes = limit, limit
		p := ask[*kmsg.FetchResponse](b, req).Topics[0].Partitions[0]
		most := 1
		if limit > 0 {
			most = 2
		}
		wantCode(t, fmt.Sprintf("max bytes %d", limit), p.ErrorCode, nil)
		if n := len(p.RecordBatches) / len(raw); n != most {
			t.Errorf("max bytes %d: %d batches, expected %d", limit, n, most)
		}
	}
	for _, s := range []struct{ id, epoch int32 }{{0, 5}, {12345, 1}, {-1, math.MaxInt32}} {
		req := fetchRequest("t", 0, 2)
		req.SessionID, req.SessionEpoch = s.id, s.epoch
		wantCode(t, fmt.Sprintf("session %d epoch %d", s.id, s.epoch), ask[*kmsg.FetchResponse](b, req).ErrorCode, kerr.FetchSessionIDNotFound)
	}
	for _, s := range []struct{ id, epoch int32 }{{0, 0}, {0, -1}, {12345, -1}, {12345, 0}} {
		req := fetchRequest("t", 0, 2)
		req.SessionID, req.SessionEpoch = s.id, s.epoch
		resp := ask[*kmsg.FetchResponse](b, req)
		if resp.ErrorCode != 0 || resp.SessionID != 0 || len(resp.Topics[0].Partitions[0].RecordBatches) == 0 {
			t.Errorf("session %d epoch %d: error %d, session %d, %d bytes", s.id, s.epoch, resp.ErrorCode, resp.SessionID, len(resp.Topics[0].Partitions[0].RecordBatches))
		}
	}
	epoch := fetchRequest("t", 0, 2)
	epoch.Topics[0].Partitions[0].CurrentLeaderEpoch = 1
	wantCode(t, "a leader epoch from the future", ask[*kmsg.FetchResponse](b, epoch).Topics[0].Partitions[0].ErrorCode, kerr.UnknownLeaderEpoch)

	many := fetchRequest("t", 0, 2)
	one := many.Topics[0].Partitions[0]
	for range 100_000 {
		many.Topics[0].Partitions = append(many.Topics[0].Partitions, one)
	}
	many.Version = 11
	resp := ask[*kmsg.FetchResponse](b, many)
	size := 0
	for _, p := range resp.Topics[0].Partitions {
		size += len(p.RecordBatches)
	}
	if len(resp.Topics[0].Partitions) != 1 || size > int(many.MaxBytes)+len(raw) {
		t.Errorf("100,001 mentions of a partition: %d answers with %d bytes of records", len(resp.Topics[0].Partitions), size)
	}
}

func TestAnAnswerHasItsLimitWhateverIsAskedFor(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 40, nil)
	raw := sealed(t, batch.None, value(strings.Repeat("x", 1<<20-1000)))
	req := fetchRequest("t", 0, 0)
	req.MaxBytes, req.Topics[0].Partitions = math.MaxInt32, nil
	for number := range int32(40) {
		b.mustProduce("t", number, append([]byte(nil), raw...))
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.PartitionMaxBytes, p.CurrentLeaderEpoch = number, math.MaxInt32, -1
		req.Topics[0].Partitions = append(req.Topics[0].Partitions, p)
	}
	resp := ask[*kmsg.FetchResponse](b, req)
	size := 0
	for _, p := range resp.Topics[0].Partitions {
		size += len(p.RecordBatches)
		if p.HighWatermark != 1 {
			t.Errorf("partition %d: high watermark %d", p.Partition, p.HighWatermark)
		}
	}
	if size > kafka.FetchMax+len(raw) || size < kafka.FetchMax-len(raw) {
		t.Errorf("%d bytes, expected about %d", size, kafka.FetchMax)
	}
}

func TestWaitsAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		b := startAt(t, memory.New(), l, kafka.Config{})
		b.createTopic("t", 1, nil)
		w := l.dial(t)
		w.nc.SetDeadline(time.Time{})
		req := fetchRequest("t", 0, 0)
		req.MaxWaitMillis = math.MaxInt32
		began := time.Now()
		w.send(frame(req, 1))
		w.receive(req, 1)
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("the fetch waits %v", took)
		}
		w.nc.Close()
		b.stop()
	})
}

func (b *broker) deleteRecords(topic string, partition int32, before int64) kmsg.DeleteRecordsResponseTopicPartition {
	b.t.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.Version = 2
	t := kmsg.NewDeleteRecordsRequestTopic()
	t.Topic = topic
	p := kmsg.NewDeleteRecordsRequestTopicPartition()
	p.Partition, p.Offset = partition, before
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return ask[*kmsg.DeleteRecordsResponse](b, req).Topics[0].Partitions[0]
}
