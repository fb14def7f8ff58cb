package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
)

// OffsetForLeaderEpoch tells where a leader epoch ends, so that clients notice a log that lost its end. Ours never does: there is one
// epoch, and it ends where the log ends.
func (s *Server) offsetForLeaderEpoch(ctx context.Context, _ *request, in *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	out := in.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, asked := range in.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, asked.Topic)
		for _, ask := range asked.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = ask.Partition, -1, -1
			end, err := eventlog.Offset(0), unknown
			if err == nil {
				end, err = s.endOf(ctx, topic, ask)
			}
			switch {
			case err != nil:
				s.trouble("OffsetForLeaderEpoch", err)
				p.ErrorCode = errorCode(err)
			case ask.LeaderEpoch == leaderEpoch:
				p.LeaderEpoch, p.EndOffset = leaderEpoch, int64(end)
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

func (s *Server) endOf(ctx context.Context, topic eventlog.Topic, ask kmsg.OffsetForLeaderEpochRequestTopicPartition) (eventlog.Offset, error) {
	partition, err := partitionOf(topic, ask.Partition)
	if err != nil {
		return 0, err
	}
	if err := checkEpoch(ask.CurrentLeaderEpoch); err != nil {
		return 0, err
	}
	slices, err := s.log.Bounds(ctx, partition)
	if err != nil {
		return 0, err
	}
	return slices[0].Bounds.Next, slices[0].Err
}
