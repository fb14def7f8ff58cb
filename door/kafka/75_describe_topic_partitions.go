package kafka

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// describePartitionsMax bounds one answer, as in Kafka (max.request.partition.size.limit).
const describePartitionsMax = 2000

// describeTopicPartitions describes topics in order of name, page by page. An empty list of topics
// means all.
func (s *Server) describeTopicPartitions(ctx context.Context, r *request, in *kmsg.DescribeTopicPartitionsRequest) *kmsg.DescribeTopicPartitionsResponse {
	out := in.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	view := s.view()
	room := int(in.ResponsePartitionLimit)
	if room < 1 || room > describePartitionsMax {
		room = describePartitionsMax
	}
	for _, name := range s.describedNames(r, in) {
		from := int32(0)
		if in.Cursor != nil && in.Cursor.Topic == name {
			from = in.Cursor.Partition
		}
		if room == 0 {
			out.NextCursor = cursorAt(name, from)
			return out
		}
		t := kmsg.NewDescribeTopicPartitionsResponseTopic()
		t.Topic = &name
		topic, err := eventlog.Topic{}, r.permit(acl.Describe, acl.Topic, name)
		if err == nil {
			topic, err = s.lookUp(ctx, name)
		}
		if err == nil && from < 0 {
			err = deny(kerr.InvalidRequest, "the cursor is at partition %d; the number must be 0 or more", from)
		}
		if err != nil {
			s.trouble("DescribeTopicPartitions", err)
			t.ErrorCode = errorCode(err)
			out.Topics = append(out.Topics, t)
			continue
		}
		t.TopicID, t.IsInternal, t.AuthorizedOperations = topic.ID, eventlog.InternalTopic(topic.Name), r.operations(topicOperations, acl.Topic, topic.Name)
		end := min(len(topic.Partitions), int(from)+room)
		if err := r.claimAnswer(ctx, max(end-int(from), 0)*describedCost); err != nil {
			return nil
		}
		t.Partitions = slices.Grow(t.Partitions, max(end-int(from), 0))
		for number := int(from); number < end; number++ {
			t.Partitions = append(t.Partitions, s.describePartition(int32(number), view.Replicas(topic.Partitions[number])))
			room--
		}
		out.Topics = append(out.Topics, t)
		if end < len(topic.Partitions) {
			out.NextCursor = cursorAt(name, int32(end))
			return out
		}
	}
	return out
}

// describedCost estimates the bytes of a partition in an answer, in memory and encoded.
const describedCost = 256

// describedNames returns the topics from the cursor on, in order, without duplicates.
func (s *Server) describedNames(r *request, in *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for _, t := range in.Topics {
		names = append(names, t.Topic)
	}
	if len(in.Topics) == 0 {
		for _, t := range s.topicsSeen(r) {
			names = append(names, t.Name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if in.Cursor != nil {
		names = slices.DeleteFunc(names, func(name string) bool { return name < in.Cursor.Topic })
	}
	return names
}

func (s *Server) describePartition(number int32, replicas []int32) kmsg.DescribeTopicPartitionsResponseTopicPartition {
	p := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
	p.Partition, p.LeaderID, p.LeaderEpoch = number, replicas[0], s.log.LeaderEpoch()
	p.Replicas, p.ISR = replicas, replicas
	p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{} // Kafka's own client fails on null
	return p
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}
