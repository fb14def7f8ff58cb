package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// offsetForLeaderEpoch returns the end of a leader epoch, so that clients detect that the log was
// rewound. It costs one store call. A partition that is mentioned more than once is answered once,
// for its first mention.
func (s *Server) offsetForLeaderEpoch(ctx context.Context, r *request, in *kmsg.OffsetForLeaderEpochRequest) *kmsg.OffsetForLeaderEpochResponse {
	out := in.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	var ps []eventlog.Partition
	var epochs []int32
	var slots []slot
	mentions := make(map[askedPartition]bool)
	for i, asked := range in.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, r, acl.Describe, asked.Topic)
		for _, ask := range asked.Partitions {
			if !first(mentions, askedPartition{asked.Topic, ask.Partition}) {
				continue
			}
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = ask.Partition, -1, -1
			partition, err := eventlog.Partition(0), unknown
			if err == nil {
				partition, err = partitionOf(topic, ask.Partition)
			}
			if err == nil {
				err = checkEpoch(ask.CurrentLeaderEpoch, s.log.LeaderEpoch())
			}
			if err != nil {
				s.trouble("OffsetForLeaderEpoch", err)
				p.ErrorCode = errorCode(err)
			} else {
				ps, epochs, slots = append(ps, partition), append(epochs, ask.LeaderEpoch), append(slots, slot{i, len(t.Partitions)})
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	if len(ps) == 0 {
		return out
	}
	bounds, err := s.log.EachBounds(ctx, ps...)
	for i, at := range slots {
		p, err := &out.Topics[at.topic].Partitions[at.partition], err
		if err == nil {
			err = bounds[i].Err
		}
		if err != nil {
			s.trouble("OffsetForLeaderEpoch", err)
			p.ErrorCode = errorCode(err)
		} else if epoch, end, known := s.log.EpochEnd(ps[i], epochs[i], bounds[i].Bounds.Next); known {
			p.LeaderEpoch, p.EndOffset = epoch, int64(end)
		}
	}
	return out
}
