package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// toHighWatermark, as an offset of DeleteRecords, means all records.
const toHighWatermark = -1

// deleteRecords deletes records below an offset: one store call for each topic with owners, one for
// the bounds of all partitions, and one for each that changes. A partition that is named twice is
// refused, because the offsets may differ.
func (s *Server) deleteRecords(ctx context.Context, r *request, in *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	out := in.ResponseKind().(*kmsg.DeleteRecordsResponse)
	var ps []eventlog.Partition
	var slots []slot
	mentions, needed := make(map[askedPartition]bool), make(map[eventlog.TopicID]error)
	for i, asked := range in.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = asked.Topic
		topic, refused := s.topicByName(ctx, r, acl.Delete, asked.Topic)
		if refused == nil {
			err, known := needed[topic.ID]
			if !known {
				err = s.checkDeletes(ctx, topic)
				needed[topic.ID] = err
			}
			refused = err
		}
		for k, ask := range asked.Partitions {
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.LowWatermark = ask.Partition, -1
			partition, err := eventlog.Partition(0), refused
			if err == nil {
				partition, err = partitionOf(topic, ask.Partition)
			}
			if !first(mentions, askedPartition{asked.Topic, ask.Partition}) {
				err = deny(kerr.InvalidRequest, "the partition is in this request more than once; name it once")
			}
			if err != nil {
				s.trouble("DeleteRecords", err)
				p.ErrorCode = errorCode(err)
			} else {
				ps, slots = append(ps, partition), append(slots, slot{i, k})
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	if len(ps) == 0 {
		return out
	}
	changed := s.log.IncarnationChanged()
	bounds, err := s.log.EachBounds(ctx, ps...)
	for i, at := range slots {
		low, err := eventlog.Offset(0), err
		if err == nil {
			low, err = s.deleteBefore(ctx, changed, ps[i], bounds[i], eventlog.Offset(in.Topics[at.topic].Partitions[at.partition].Offset))
		}
		p := &out.Topics[at.topic].Partitions[at.partition]
		if err != nil {
			s.trouble("DeleteRecords", err)
			p.ErrorCode = errorCode(err)
		} else {
			p.LowWatermark = int64(low)
		}
	}
	return out
}

// checkDeletes refuses to delete records that a part of weir needs.
func (s *Server) checkDeletes(ctx context.Context, topic eventlog.Topic) error {
	err := s.log.CheckDeletes(ctx, topic)
	if invalid, is := errors.AsType[*eventlog.InvalidError](err); is {
		return deny(kerr.InvalidTopicException, "%v", invalid)
	}
	if err == nil && !topic.Deletes() { // as Kafka does: Partition.deleteRecordsOnLeader
		return deny(kerr.PolicyViolation, "topic %q has cleanup.policy=%s: a record is deleted by a newer one of its key; set cleanup.policy=compact,delete to delete records otherwise", topic.Name, topic.Setting("cleanup.policy"))
	}
	return err
}

// deleteBefore deletes the records below an offset, and returns the partition's new first offset.
func (s *Server) deleteBefore(ctx context.Context, changed <-chan struct{}, partition eventlog.Partition, now eventlog.Slice, before eventlog.Offset) (eventlog.Offset, error) {
	if now.Err != nil {
		return 0, now.Err
	}
	b := now.Bounds
	if before == toHighWatermark {
		before = b.Next
	}
	if before < 0 || before > b.Next {
		return 0, &eventlog.RangeError{Partition: partition, Asked: before, First: b.First, Next: b.Next}
	}
	return max(before, b.First), s.log.TrimFound(ctx, changed, partition, before)
}
