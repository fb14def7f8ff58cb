package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// consumerGroupDescribe returns the members of groups whose partitions weir assigns: those of the
// consumer protocol (KIP-848), and the Go and HTTP members beside them. Other groups are not found,
// as in Kafka: tools then ask for them with DescribeGroups.
func (s *Server) consumerGroupDescribe(ctx context.Context, r *request, in *kmsg.ConsumerGroupDescribeRequest) *kmsg.ConsumerGroupDescribeResponse {
	out := in.ResponseKind().(*kmsg.ConsumerGroupDescribeResponse)
	all := s.describeEach(ctx, r, in.Groups, func(name string, err error) {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group = name
		if err != nil {
			g.ErrorCode, g.ErrorMessage = r.codeOf(err)
		}
		out.Groups = append(out.Groups, g)
	}, func(row int, d group.Described, err error) bool {
		g := &out.Groups[row]
		switch {
		case g.Group == "":
			err = deny(kerr.InvalidGroupID, "the group's name is empty")
		case errors.Is(err, group.ErrNotFound):
			err = deny(kerr.GroupIDNotFound, "group %q does not exist", g.Group)
		case err == nil && !d.Peers:
			err = deny(kerr.GroupIDNotFound, "group %q is not a consumer group: it has no members of the consumer protocol", g.Group)
		case err == nil && !s.seesAll(r, d):
			err = deny(kerr.TopicAuthorizationFailed, "the group has topics that the client may not describe")
		}
		if err != nil {
			s.trouble("ConsumerGroupDescribe", err)
			g.ErrorCode, g.ErrorMessage = r.codeOf(err)
			return true
		}
		size := 0
		for _, m := range d.Members {
			size += memberCost + 2*(len(m.ID)+len(m.Instance)+len(m.ClientID)+len(m.ClientHost)+len(m.Pattern)) + 64*len(m.Topics) + 2*len(m.Assignment) + 128*(len(m.Has)+len(m.Target))
		}
		if r.claimAnswer(ctx, size) != nil {
			return false
		}
		describeConsumers(g, d)
		if in.IncludeAuthorizedOperations {
			g.AuthorizedOperations = r.operations(groupOperations, acl.Group, g.Group)
		}
		return true
	})
	if !all {
		return nil
	}
	return out
}

// seesAll reports whether the client may describe all topics of a group's members. Otherwise Kafka
// shows nothing of the group (KafkaApis.handleConsumerGroupDescribe).
func (s *Server) seesAll(r *request, d group.Described) bool {
	seen := make(map[string]bool)
	for _, m := range d.Members {
		for _, all := range [][]group.Share{m.Has, m.Target} {
			for _, share := range all {
				if first(seen, share.Topic) && !r.may(acl.Describe, acl.Topic, share.Topic) {
					return false
				}
			}
		}
		for _, topic := range m.Topics {
			if first(seen, topic) && !r.may(acl.Describe, acl.Topic, topic) {
				return false
			}
		}
	}
	return true
}

func describeConsumers(g *kmsg.ConsumerGroupDescribeResponseGroup, d group.Described) {
	g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = string(d.State), d.Generation, d.Generation, d.Assignor
	for _, m := range d.Members {
		row := kmsg.NewConsumerGroupDescribeResponseGroupMember()
		row.MemberID, row.InstanceID, row.RackID, row.MemberEpoch = m.ID, orNil(m.Instance), orNil(m.Rack), m.Epoch
		row.ClientID, row.ClientHost = m.ClientID, m.ClientHost
		row.SubscribedTopics, row.SubscribedTopicRegex = m.Topics, orNil(m.Pattern)
		row.Assignment, row.TargetAssignment = assignmentRow(m.Has), assignmentRow(m.Target)
		if row.MemberType = 1; m.Classic { // 1: of the consumer protocol
			row.MemberType = 0
		}
		g.Members = append(g.Members, row)
	}
}

func assignmentRow(shares []group.Share) (a kmsg.Assignment) {
	for _, share := range shares {
		row := kmsg.NewAssignmentTopicPartition()
		row.TopicID, row.Topic, row.Partitions = share.ID, share.Topic, share.Partitions
		a.TopicPartitions = append(a.TopicPartitions, row)
	}
	return a
}
