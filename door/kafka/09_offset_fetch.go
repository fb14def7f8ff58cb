package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/group"
)

// OffsetFetch tells how far groups have read: one up to version 7, any number since (KIP-709). There is nothing to wait for where
// a stable offset is asked for: offsets are not committed in transactions.
func (s *Server) offsetFetch(ctx context.Context, _ *request, in *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	out := in.ResponseKind().(*kmsg.OffsetFetchResponse)
	if in.Version >= 8 {
		for _, ask := range in.Groups {
			out.Groups = append(out.Groups, s.fetchGroup(ctx, ask, in.Version >= 10))
		}
		return out
	}
	ask := kmsg.NewOffsetFetchRequestGroup()
	ask.Group = in.Group
	if in.Topics != nil {
		ask.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for _, t := range in.Topics {
		topic := kmsg.NewOffsetFetchRequestGroupTopic()
		topic.Topic, topic.Partitions = t.Topic, t.Partitions
		ask.Topics = append(ask.Topics, topic)
	}
	answer := s.fetchGroup(ctx, ask, false)
	out.ErrorCode = answer.ErrorCode
	for _, t := range answer.Topics {
		row := kmsg.NewOffsetFetchResponseTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			if in.Version < 2 && answer.ErrorCode != 0 {
				p.ErrorCode = answer.ErrorCode // there is no other place for it
			}
			row.Partitions = append(row.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
		}
		out.Topics = append(out.Topics, row)
	}
	return out
}

// fetchGroup answers for one group: the partitions asked for, or with null topics all that it has.
func (s *Server) fetchGroup(ctx context.Context, ask kmsg.OffsetFetchRequestGroup, byID bool) kmsg.OffsetFetchResponseGroup {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = ask.Group
	if ask.Topics == nil {
		all, err := s.groups.Fetch(ctx, ask.Group, nil)
		out.ErrorCode = errorCode(err)
		for _, c := range all {
			if n := len(out.Topics); n == 0 || out.Topics[n-1].TopicID != c.Topic {
				t := kmsg.NewOffsetFetchResponseGroupTopic()
				t.Topic, t.TopicID = c.Name, c.Topic
				out.Topics = append(out.Topics, t)
			}
			t := &out.Topics[len(out.Topics)-1]
			t.Partitions = append(t.Partitions, committedRow(c))
		}
		return out
	}
	var which []group.TopicPartition
	for _, t := range ask.Topics {
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		topic, err := s.topicEither(ctx, t.Topic, t.TopicID, byID)
		for _, p := range t.Partitions {
			a := committedRow(group.Committed{TopicPartition: group.TopicPartition{Partition: p}, Offset: -1, LeaderEpoch: -1})
			if err != nil && byID {
				a.ErrorCode = errorCode(err) // by name, a topic that is not there is one without offsets
			}
			row.Partitions = append(row.Partitions, a)
			which = append(which, group.TopicPartition{Topic: topic.ID, Partition: p})
		}
		out.Topics = append(out.Topics, row)
	}
	// Nothing asked for is an empty list, which is not null.
	found, err := s.groups.Fetch(ctx, ask.Group, append([]group.TopicPartition{}, which...))
	if err != nil {
		s.trouble("OffsetFetch", err)
		out.ErrorCode = errorCode(err)
		return out
	}
	i := 0
	for t := range out.Topics {
		for p := range out.Topics[t].Partitions {
			if a := &out.Topics[t].Partitions[p]; a.ErrorCode == 0 {
				*a = committedRow(found[i])
			}
			i++
		}
	}
	return out
}

func committedRow(c group.Committed) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = c.Partition, int64(c.Offset), c.LeaderEpoch, &c.Metadata
	return p
}
