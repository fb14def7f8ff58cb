package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// OffsetForLeaderEpoch tells where a leader epoch ends, so that clients notice a log that lost its end.
func (s *Server) offsetForLeaderEpoch(ctx context.Context, _ *request, in *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	out := in.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, asked := range in.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, asked.Topic)
		for _, ask := range asked.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = ask.Partition, -1, -1
			end, partition, err := eventlog.Offset(0), eventlog.Partition(0), unknown
			if err == nil {
				partition, end, err = s.endOf(ctx, topic, ask)
			}
			if err != nil {
				s.trouble("OffsetForLeaderEpoch", err)
				p.ErrorCode = errorCode(err)
			} else if epoch, end, known := s.log.EpochEnd(partition, ask.LeaderEpoch, end); known {
				p.LeaderEpoch, p.EndOffset = epoch, int64(end)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

func (s *Server) endOf(ctx context.Context, topic eventlog.Topic, ask kmsg.OffsetForLeaderEpochRequestTopicPartition) (eventlog.Partition, eventlog.Offset, error) {
	partition, err := partitionOf(topic, ask.Partition)
	if err != nil {
		return 0, 0, err
	}
	if err := s.checkEpoch(ask.CurrentLeaderEpoch); err != nil {
		return 0, 0, err
	}
	slices, err := s.log.Bounds(ctx, partition)
	if err != nil {
		return 0, 0, err
	}
	return partition, slices[0].Bounds.Next, slices[0].Err
}
