package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/group"
)

// OffsetDelete forgets committed offsets of topics that the group does not read (KIP-496).
func (s *Server) offsetDelete(ctx context.Context, _ *request, in *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	out := in.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var found []group.Committed
	var codes []*int16 // where the outcome of each goes
	for _, t := range in.Topics {
		row := kmsg.NewOffsetDeleteResponseTopic()
		row.Topic = t.Topic
		row.Partitions = make([]kmsg.OffsetDeleteResponseTopicPartition, len(t.Partitions))
		topic, unknown := s.topicByName(ctx, t.Topic)
		for i, p := range t.Partitions {
			a := &row.Partitions[i]
			a.Partition = p.Partition
			err := unknown
			if err == nil {
				_, err = partitionOf(topic, p.Partition)
			}
			if err != nil {
				a.ErrorCode = errorCode(err)
				continue
			}
			found = append(found, group.Committed{Name: topic.Name, TopicPartition: group.TopicPartition{Topic: topic.ID, Partition: p.Partition}})
			codes = append(codes, &a.ErrorCode)
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
		*codes[i] = errorCode(err)
	}
	return out
}
