package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/audit"
)

// toHighWatermark, as an offset of DeleteRecords, means all records.
const toHighWatermark = -1

// deleteRecords deletes records below an offset: a store call for the owners of all topics, one for
// the bounds of all partitions, one for the audit, and one for hundreds of partitions that change.
// A partition that is named more than once is answered once, at the place of its first mention, for
// what its last mention asks. Kafka's broker does so because it has a map by partition
// (KafkaApis.handleDeleteRecordsRequest).
func (s *Server) deleteRecords(ctx context.Context, r *request, in *kmsg.DeleteRecordsRequest) *kmsg.DeleteRecordsResponse {
	topics, refused := s.deletable(ctx, r, in.Topics)
	out := in.ResponseKind().(*kmsg.DeleteRecordsResponse)
	last := make(map[askedPartition]int64) // the offset in the last mention of each partition
	for _, asked := range in.Topics {
		for _, ask := range asked.Partitions {
			last[askedPartition{asked.Topic, ask.Partition}] = ask.Offset
		}
	}
	var ps []eventlog.Partition
	var before []eventlog.Offset
	var slots []slot
	mentions := make(map[askedPartition]bool)
	for i, asked := range in.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = asked.Topic
		for _, ask := range asked.Partitions {
			mention := askedPartition{asked.Topic, ask.Partition}
			if !first(mentions, mention) {
				continue
			}
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.LowWatermark = ask.Partition, -1
			partition, err := eventlog.Partition(0), refused[i]
			if err == nil {
				partition, err = partitionOf(topics[i], ask.Partition)
			}
			if err != nil {
				s.trouble("DeleteRecords", err)
				p.ErrorCode = errorCode(err)
			} else {
				ps, before, slots = append(ps, partition), append(before, eventlog.Offset(last[mention])), append(slots, slot{i, len(t.Partitions)})
			}
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	if len(ps) == 0 {
		return out
	}
	lows, errs := s.deleteBefore(ctx, ps, before, func(i int, first, to eventlog.Offset) audit.Event {
		topic := out.Topics[slots[i].topic]
		partition := topic.Partitions[slots[i].partition].Partition
		return audit.Event{Verb: audit.RecordsDelete, Object: topic.Topic, Before: beginning{partition, first}, After: beginning{partition, to}}
	})
	for i, at := range slots {
		p := &out.Topics[at.topic].Partitions[at.partition]
		if errs[i] != nil {
			s.trouble("DeleteRecords", errs[i])
			p.ErrorCode = errorCode(errs[i])
		} else {
			p.LowWatermark = int64(lows[i])
		}
	}
	return out
}

// deletable finds topics, and returns why the client may not delete their records.
func (s *Server) deletable(ctx context.Context, r *request, asked []kmsg.DeleteRecordsRequestTopic) ([]eventlog.Topic, []error) {
	topics, refused := make([]eventlog.Topic, len(asked)), make([]error, len(asked))
	for i, a := range asked {
		topics[i], refused[i] = s.topicByName(ctx, r, acl.Delete, a.Topic)
	}
	for i, err := range s.log.CheckDeletes(ctx, topics...) {
		if refused[i] == nil {
			refused[i] = checkDeletes(topics[i], err)
		}
	}
	return topics, refused
}

// checkDeletes refuses to delete records that a part of weir needs (needed), or that Kafka does not
// delete either.
func checkDeletes(topic eventlog.Topic, needed error) error {
	if invalid, is := errors.AsType[*eventlog.InvalidError](needed); is {
		return deny(kerr.InvalidTopicException, "%v", invalid)
	}
	if needed == nil && !topic.Deletes() { // as Kafka does: Partition.deleteRecordsOnLeader
		return deny(kerr.PolicyViolation, "topic %q has cleanup.policy=%s: a record is deleted by a newer one of its key; set cleanup.policy=compact,delete to delete records otherwise", topic.Name, topic.Setting("cleanup.policy"))
	}
	return needed
}

// beginning is where a partition begins, for the audit.
type beginning struct {
	Partition   int32           `json:"partition"`
	FirstOffset eventlog.Offset `json:"first_offset"`
}

// deleteBefore deletes records of partitions below offsets, and returns the partitions' new first
// offsets. An entry of the log cannot do that, so the audit records it in an entry of its own,
// before it is done.
func (s *Server) deleteBefore(ctx context.Context, ps []eventlog.Partition, before []eventlog.Offset, tell func(i int, first, to eventlog.Offset) audit.Event) (lows []eventlog.Offset, errs []error) {
	lows, errs = make([]eventlog.Offset, len(ps)), make([]error, len(ps))
	changed := s.log.IncarnationChanged()
	bounds, err := s.log.EachBounds(ctx, ps...)
	if err != nil {
		return lows, slices.Repeat([]error{err}, len(ps))
	}
	var trims []eventlog.Trim
	var of []int
	var events []audit.Event
	for i, p := range ps {
		b, to := bounds[i].Bounds, before[i]
		if to == toHighWatermark {
			to = b.Next
		}
		switch {
		case bounds[i].Err != nil:
			errs[i] = bounds[i].Err
		case to < 0 || to > b.Next:
			errs[i] = &eventlog.RangeError{Partition: p, Asked: to, First: b.First, Next: b.Next}
		default:
			lows[i] = max(to, b.First)
			if to > b.First {
				events = append(events, tell(i, b.First, to))
			}
			trims, of = append(trims, eventlog.Trim{Partition: p, Before: to}), append(of, i)
		}
	}
	if err := s.cfg.Audit.Record(ctx, events...); err != nil {
		for _, i := range of {
			errs[i] = fmt.Errorf("%w: it could not be recorded who deletes records, and none were deleted (%v)", eventlog.ErrUnavailable, err)
		}
		return lows, errs
	}
	for i, err := range s.log.TrimFound(ctx, changed, trims...) {
		errs[of[i]] = err
	}
	return lows, errs
}
