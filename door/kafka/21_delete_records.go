package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// toHighWatermark, as an offset of DeleteRecords, means everything there is.
const toHighWatermark = -1

// DeleteRecords moves the beginning of partitions up.
func (s *Server) deleteRecords(ctx context.Context, _ *request, in *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	out := in.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, asked := range in.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, asked.Topic)
		for _, ask := range asked.Partitions {
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.LowWatermark = ask.Partition, -1
			low, err := eventlog.Offset(0), unknown
			if err == nil {
				low, err = s.deleteBefore(ctx, topic, ask)
			}
			if err != nil {
				s.trouble("DeleteRecords", err)
				p.ErrorCode = errorCode(err)
			} else {
				p.LowWatermark = int64(low)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// deleteBefore returns where the partition begins afterwards.
func (s *Server) deleteBefore(ctx context.Context, topic eventlog.Topic, ask kmsg.DeleteRecordsRequestTopicPartition) (eventlog.Offset, error) {
	partition, err := partitionOf(topic, ask.Partition)
	if err != nil {
		return 0, err
	}
	slices, err := s.log.Bounds(ctx, partition)
	if err != nil {
		return 0, err
	}
	if slices[0].Err != nil {
		return 0, slices[0].Err
	}
	b, before := slices[0].Bounds, eventlog.Offset(ask.Offset)
	if before == toHighWatermark {
		before = b.Next
	}
	if before < 0 || before > b.Next {
		return 0, &eventlog.RangeError{Partition: partition, Asked: before, First: b.First, Next: b.Next}
	}
	return max(before, b.First), s.log.Trim(ctx, partition, before)
}
