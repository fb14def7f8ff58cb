package kafka_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/door/kafka"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// counted is a store that counts what it is asked for.
type counted struct {
	eventlog.Store
	reads, spans, seeks, commits atomic.Int64
}

func (s *counted) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.reads.Add(1)
	s.spans.Add(int64(len(spans)))
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *counted) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.seeks.Add(1)
	return s.Store.Seek(ctx, goals)
}

func (s *counted) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.commits.Add(1)
	return s.Store.Commit(ctx, flush)
}

// all is how many trips and spans there were since it was last asked.
func (s *counted) all() int64 {
	return s.reads.Swap(0) + s.spans.Swap(0) + s.seeks.Swap(0) + s.commits.Swap(0)
}

func TestRepeatedMentionsCostTheStoreNothing(t *testing.T) {
	const mentions, few = 1000, 20
	s := &counted{Store: memory.New()}
	b := startOn(t, s, kafka.Config{})
	b.createTopic("t", 1, nil)
	b.mustProduce("t", 0, sealed(t, batch.None, value("v")))

	list := kmsg.NewPtrListOffsetsRequest()
	list.Version = 10
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Version = 4
	trim := kmsg.NewPtrDeleteRecordsRequest()
	trim.Version = 2
	lt, et, dt := kmsg.NewListOffsetsRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewDeleteRecordsRequestTopic()
	lt.Topic, et.Topic, dt.Topic = "t", "t", "t"
	for range mentions {
		lp, ep, dp := kmsg.NewListOffsetsRequestTopicPartition(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition(), kmsg.NewDeleteRecordsRequestTopicPartition()
		lp.Timestamp, ep.CurrentLeaderEpoch, dp.Offset = 5, -1, 1
		lt.Partitions, et.Partitions, dt.Partitions = append(lt.Partitions, lp), append(et.Partitions, ep), append(dt.Partitions, dp)
	}
	list.Topics, epochs.Topics, trim.Topics = append(list.Topics, lt), append(epochs.Topics, et), append(trim.Topics, dt)

	s.all()
	listed := ask[*kmsg.ListOffsetsResponse](b, list).Topics[0].Partitions
	if n := s.all(); n > few {
		t.Errorf("ListOffsets with %d mentions cost %d trips and spans", mentions, n)
	}
	wantCode(t, "ListOffsets", listed[0].ErrorCode, kerr.InvalidRequest)
	ended := ask[*kmsg.OffsetForLeaderEpochResponse](b, epochs).Topics[0].Partitions
	if n := s.all(); n > few || len(ended) != 1 || ended[0].ErrorCode != 0 || ended[0].EndOffset != 1 {
		t.Errorf("OffsetForLeaderEpoch with %d mentions cost %d trips and spans, and has %d answers", mentions, n, len(ended))
	}
	trimmed := ask[*kmsg.DeleteRecordsResponse](b, trim).Topics[0].Partitions
	if n := s.all(); n > few || len(trimmed) != 1 || trimmed[0].ErrorCode != 0 || trimmed[0].LowWatermark != 1 {
		t.Errorf("DeleteRecords with %d mentions cost %d trips and spans, and has %d answers", mentions, n, len(trimmed))
	}
}

// Partitions that a second mention of a topic adds are answered, beside those of the first.
func TestPartitionsOfASecondMentionAreAnswered(t *testing.T) {
	b := start(t, kafka.Config{})
	b.createTopic("t", 3, nil)
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	committed := kmsg.NewOffsetCommitRequestTopic()
	committed.Topic = "t"
	for number := range int32(3) {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = number, int64(10+number)
		committed.Partitions = append(committed.Partitions, p)
	}
	commit.Topics = append(commit.Topics, committed)
	wantCode(t, "commit", ask[*kmsg.OffsetCommitResponse](b, commit).Topics[0].Partitions[0].ErrorCode, nil)

	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Version = 8
	of := kmsg.NewOffsetFetchRequestGroup()
	of.Group = "g"
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.Version = 4
	producers := kmsg.NewPtrDescribeProducersRequest()
	for _, partitions := range [][]int32{{0, 0}, {1}, {0, 2, 1}} {
		ot, dt, pt := kmsg.NewOffsetFetchRequestGroupTopic(), kmsg.NewDescribeLogDirsRequestTopic(), kmsg.NewDescribeProducersRequestTopic()
		ot.Topic, dt.Topic, pt.Topic = "t", "t", "t"
		ot.Partitions, dt.Partitions, pt.Partitions = partitions, partitions, partitions
		of.Topics, dirs.Topics, producers.Topics = append(of.Topics, ot), append(dirs.Topics, dt), append(producers.Topics, pt)
	}
	fetch.Groups = append(fetch.Groups, of)
	want := []int32{0, 1, 2}
	var got []int32
	for _, rt := range ask[*kmsg.OffsetFetchResponse](b, fetch).Groups[0].Topics {
		for _, p := range rt.Partitions {
			if got = append(got, p.Partition); p.Offset != int64(10+p.Partition) {
				t.Errorf("OffsetFetch: partition %d is at %d", p.Partition, p.Offset)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("OffsetFetch answers for %d", got)
	}
	got = nil
	for _, rt := range ask[*kmsg.DescribeLogDirsResponse](b, dirs).Dirs[0].Topics {
		for _, p := range rt.Partitions {
			got = append(got, p.Partition)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("DescribeLogDirs answers for %d", got)
	}
	got = nil
	for _, rt := range ask[*kmsg.DescribeProducersResponse](b, producers).Topics {
		for _, p := range rt.Partitions {
			got = append(got, p.Partition)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("DescribeProducers answers for %d", got)
	}
}
