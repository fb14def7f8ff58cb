package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// offsetDelete deletes committed offsets of topics that the group is not subscribed to (KIP-496).
func (s *Server) offsetDelete(ctx context.Context, r *request, in *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	out := in.ResponseKind().(*kmsg.OffsetDeleteResponse)
	if err := r.permit(acl.Delete, acl.Group, in.Group); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	var found []group.Committed
	var slots []slot // where the answer of each offset goes
	mentions := make(map[askedPartition]bool)
	for i, t := range in.Topics {
		row := kmsg.NewOffsetDeleteResponseTopic()
		row.Topic = t.Topic
		topic, unknown := s.topicByName(ctx, r, acl.Read, t.Topic)
		for _, p := range t.Partitions {
			if !first(mentions, askedPartition{t.Topic, p.Partition}) {
				continue
			}
			a := kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition}
			err := unknown
			if err == nil {
				_, err = partitionOf(topic, p.Partition)
			}
			a.ErrorCode = errorCode(err)
			row.Partitions = append(row.Partitions, a)
			if err != nil {
				continue
			}
			found = append(found, group.Committed{Name: topic.Name, TopicPartition: group.TopicPartition{Topic: topic.ID, Partition: p.Partition}})
			slots = append(slots, slot{i, len(row.Partitions) - 1})
		}
		out.Topics = append(out.Topics, row)
	}
	errs, err := s.groups.DeleteOffsets(ctx, in.Group, found)
	if err != nil {
		s.trouble("OffsetDelete", err)
		out.ErrorCode, out.Topics = errorCode(err), nil
		return out
	}
	for i, err := range errs {
		out.Topics[slots[i].topic].Partitions[slots[i].partition].ErrorCode = errorCode(err)
	}
	return out
}
