package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// consumerGroupHeartbeat keeps a member of the consumer protocol (KIP-848) in its group, and tells
// it which partitions it may have.
func (s *Server) consumerGroupHeartbeat(ctx context.Context, r *request, in *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	out := in.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	refuse := func(err error) *kmsg.ConsumerGroupHeartbeatResponse {
		s.trouble("ConsumerGroupHeartbeat", err)
		out.ErrorCode, out.ErrorMessage = r.codeOf(err)
		return out
	}
	if err := r.permit(acl.Read, acl.Group, in.Group); err != nil {
		return refuse(err)
	}
	for _, topic := range in.SubscribedTopicNames {
		if err := r.permit(acl.Describe, acl.Topic, topic); err != nil { // one such topic refuses the whole request, as in Kafka (KafkaApis.handleConsumerGroupHeartbeat)
			return refuse(err)
		}
	}
	if in.Version >= 1 && in.MemberID == "" { // since KIP-1082 the client makes it
		return refuse(deny(kerr.InvalidRequest, "the member id is empty"))
	}
	beat := group.ConsumerBeat{
		Group: in.Group, Member: in.MemberID, Epoch: in.MemberEpoch, Instance: in.InstanceID, Rack: in.RackID,
		ClientID: r.clientID, ClientHost: r.host(), By: r.conn.who.Load().id(),
		Rebalance: time.Duration(in.RebalanceTimeoutMillis) * time.Millisecond,
		Topics:    in.SubscribedTopicNames, Pattern: in.SubscribedTopicRegex, Assignor: in.ServerAssignor,
		Sees: func(topic string) bool { return r.may(acl.Describe, acl.Topic, topic) },
	}
	if in.Topics != nil {
		beat.Owned = []group.TopicPartition{}
	}
	for _, t := range in.Topics {
		for _, p := range t.Partitions {
			beat.Owned = append(beat.Owned, group.TopicPartition{Topic: t.TopicID, Partition: p})
		}
	}
	if err := s.coordinates(r, in.Group); err != nil {
		return refuse(err)
	}
	if in.MemberEpoch >= 0 { // a client that has gone is not to join, nor is its member to move here; that it leaves is done all the same
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer context.AfterFunc(r.conn.gone, cancel)()
		defer cancel()
	}
	done := r.waits()
	beaten, err := s.groups.ConsumerHeartbeat(ctx, beat)
	done()
	if err != nil {
		return refuse(inWords(err))
	}
	if err := r.claimAnswer(ctx, 32*len(beaten.Assigned)); err != nil {
		return nil
	}
	out.MemberID, out.MemberEpoch, out.HeartbeatIntervalMillis = &beaten.Member, beaten.Epoch, int32(beaten.Interval.Milliseconds())
	if beaten.Tells {
		out.Assignment = new(kmsg.ConsumerGroupHeartbeatResponseAssignment)
		for _, tp := range beaten.Assigned { // by topic
			if n := len(out.Assignment.Topics); n == 0 || out.Assignment.Topics[n-1].TopicID != tp.Topic {
				row := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
				row.TopicID = tp.Topic
				out.Assignment.Topics = append(out.Assignment.Topics, row)
			}
			row := &out.Assignment.Topics[len(out.Assignment.Topics)-1]
			row.Partitions = append(row.Partitions, tp.Partition)
		}
	}
	return out
}
