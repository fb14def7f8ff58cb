package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// offsetCommit commits offsets of a group: all of a request's offsets in one entry. Since Kafka 2.1
// (KIP-211) the broker decides how long they are kept: the retention time in old versions of the
// request is ignored.
func (s *Server) offsetCommit(ctx context.Context, r *request, in *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	out := in.ResponseKind().(*kmsg.OffsetCommitResponse)
	commit := group.Commit{Group: in.Group, Member: in.MemberID, Instance: orEmpty(in.InstanceID), Generation: in.Generation, By: r.conn.who.Load().id(), Classic: in.Version < 9}
	forbidden := r.permit(acl.Read, acl.Group, in.Group)
	var codes []*int16 // where the error code of each offset goes
	for _, t := range in.Topics {
		row := kmsg.NewOffsetCommitResponseTopic()
		row.Topic, row.TopicID = t.Topic, t.TopicID
		row.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(t.Partitions))
		topic, topicErr := eventlog.Topic{}, forbidden
		if topicErr == nil {
			topic, topicErr = s.topicEither(ctx, r, acl.Read, t.Topic, t.TopicID, in.Version >= 10)
		}
		for i, p := range t.Partitions {
			a := &row.Partitions[i]
			a.Partition = p.Partition
			err := topicErr
			if err == nil {
				_, err = partitionOf(topic, p.Partition)
			}
			if err != nil {
				a.ErrorCode = errorCode(err)
				continue
			}
			commit.Offsets = append(commit.Offsets, group.Committed{
				TopicPartition: group.TopicPartition{Topic: topic.ID, Partition: p.Partition}, Name: topic.Name,
				Offset: eventlog.Offset(p.Offset), LeaderEpoch: p.LeaderEpoch, Metadata: orEmpty(p.Metadata),
			})
			codes = append(codes, &a.ErrorCode)
		}
		out.Topics = append(out.Topics, row)
	}
	if len(commit.Offsets) == 0 {
		return out
	}
	var errs []error
	var err error
	if commit.Generation >= 0 { // the commit of a member would make this broker the group's coordinator
		err = s.coordinates(r, in.Group)
	}
	if err == nil {
		done := r.waits()
		errs, err = s.groups.Commit(ctx, commit)
		done()
	}
	if err != nil {
		s.trouble("OffsetCommit", err)
	}
	for i, code := range codes {
		if err != nil {
			*code = errorCode(err)
		} else {
			*code = errorCode(errs[i])
		}
	}
	return out
}
