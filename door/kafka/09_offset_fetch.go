package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// offsetFetch returns the committed offsets of groups: of one group up to version 7, of any number
// since version 8 (KIP-709). RequireStable needs no wait: offsets are not committed in Kafka
// transactions.
func (s *Server) offsetFetch(ctx context.Context, r *request, in *kmsg.OffsetFetchRequest) *kmsg.OffsetFetchResponse {
	out := in.ResponseKind().(*kmsg.OffsetFetchResponse)
	if in.Version >= 8 {
		again := repeated(in.Groups, func(g kmsg.OffsetFetchRequestGroup) string { return g.Group })
		for _, ask := range in.Groups {
			skip, err := again.refuse(ask.Group)
			if skip {
				continue
			}
			answer := kmsg.NewOffsetFetchResponseGroup()
			answer.Group, answer.ErrorCode = ask.Group, errorCode(err)
			if err == nil {
				answer, err = s.fetchGroup(ctx, r, ask, in.Version >= 10)
				if err != nil {
					return nil
				}
			}
			out.Groups = append(out.Groups, answer)
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
	answer, err := s.fetchGroup(ctx, r, ask, false)
	if err != nil {
		return nil
	}
	out.ErrorCode = answer.ErrorCode
	for _, t := range answer.Topics {
		row := kmsg.NewOffsetFetchResponseTopic()
		row.Topic = t.Topic
		for _, p := range t.Partitions {
			if in.Version < 2 && answer.ErrorCode != 0 {
				p.ErrorCode = answer.ErrorCode // the response has no other field for it
			}
			row.Partitions = append(row.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
		}
		out.Topics = append(out.Topics, row)
	}
	return out
}

// fetchGroup answers for one group: the requested partitions, each once, or all if topics is null.
// It fails if the claim for the answer's memory fails.
func (s *Server) fetchGroup(ctx context.Context, r *request, ask kmsg.OffsetFetchRequestGroup, byID bool) (kmsg.OffsetFetchResponseGroup, error) {
	out := kmsg.NewOffsetFetchResponseGroup()
	out.Group = ask.Group
	if err := r.permit(acl.Describe, acl.Group, ask.Group); err != nil {
		out.ErrorCode = errorCode(err)
		return out, nil
	}
	var crowded error
	claim := func(bytes int) error { crowded = r.claimAnswer(ctx, bytes); return crowded }
	if ask.Topics == nil {
		all, err := s.groups.FetchWithin(ctx, ask.Group, nil, claim)
		if crowded != nil {
			return out, crowded
		}
		out.ErrorCode = errorCode(err)
		for _, c := range all {
			if !r.may(acl.Describe, acl.Topic, c.Name) {
				continue
			}
			if n := len(out.Topics); n == 0 || out.Topics[n-1].TopicID != c.Topic {
				t := kmsg.NewOffsetFetchResponseGroupTopic()
				t.Topic, t.TopicID = c.Name, c.Topic
				out.Topics = append(out.Topics, t)
			}
			t := &out.Topics[len(out.Topics)-1]
			t.Partitions = append(t.Partitions, committedRow(c))
		}
		return out, nil
	}
	var which []group.TopicPartition
	topics := merge(ask.Topics, func(t kmsg.OffsetFetchRequestGroupTopic) (string, []int32) {
		return nameOrID(&t.Topic, t.TopicID), t.Partitions
	})
	for _, m := range topics {
		t := ask.Topics[m.first]
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		topic, err := s.topicEither(ctx, r, acl.Describe, t.Topic, t.TopicID, byID)
		for _, p := range m.partitions {
			a := committedRow(group.Committed{TopicPartition: group.TopicPartition{Partition: p}, Offset: -1, LeaderEpoch: -1})
			if err != nil && (byID || !isNone(err)) {
				a.ErrorCode = errorCode(err)
			}
			row.Partitions = append(row.Partitions, a)
			which = append(which, group.TopicPartition{Topic: topic.ID, Partition: p})
		}
		out.Topics = append(out.Topics, row)
	}
	// An empty list means no partitions; null means all.
	found, err := s.groups.FetchWithin(ctx, ask.Group, append([]group.TopicPartition{}, which...), claim)
	if crowded != nil {
		return out, crowded
	}
	if err != nil {
		s.trouble("OffsetFetch", err)
		out.ErrorCode = errorCode(err)
		return out, nil
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
	return out, nil
}

// isNone reports whether err says that the topic does not exist. If the request has the topic's
// name and not its id, the answer is then that no offset is committed. After other errors the
// answer has their code, because it is unknown what is committed.
func isNone(err error) bool {
	_, invalid := errors.AsType[*eventlog.InvalidError](err)
	return invalid || errors.Is(err, eventlog.ErrUnknownTopic)
}

func committedRow(c group.Committed) kmsg.OffsetFetchResponseGroupTopicPartition {
	p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = c.Partition, int64(c.Offset), c.LeaderEpoch, &c.Metadata
	return p
}
