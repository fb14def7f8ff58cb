package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// Kinds of elections.
const (
	electPreferred = 0
	electUnclean   = 1
)

var errElected = deny(kerr.ElectionNotNeeded, "the partition has a leader: every broker that lives can serve it")

// electLeaders answers for each partition that no election is needed. For an election of all
// partitions the answer lists none: Kafka, too, leaves out partitions that need no election
// (ReplicationControlManager.electLeaders).
func (s *Server) electLeaders(ctx context.Context, r *request, in *kmsg.ElectLeadersRequest) *kmsg.ElectLeadersResponse {
	out := in.ResponseKind().(*kmsg.ElectLeadersResponse)
	if in.ElectionType != electPreferred && in.ElectionType != electUnclean {
		out.ErrorCode = kerr.InvalidRequest.Code
		return out
	}
	refused := r.permitCluster(acl.Alter)
	out.ErrorCode = errorCode(refused)
	mentions := make(map[askedPartition]bool)
	for _, asked := range in.Topics {
		t := kmsg.NewElectLeadersResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := eventlog.Topic{}, refused
		if refused == nil {
			topic, unknown = s.topicByName(ctx, r, acl.Describe, asked.Topic)
		}
		for _, number := range asked.Partitions {
			if !first(mentions, askedPartition{asked.Topic, number}) {
				continue
			}
			err := unknown
			if err == nil {
				_, err = partitionOf(topic, number)
			}
			if err == nil {
				err = errElected
			}
			p := kmsg.NewElectLeadersResponseTopicPartition()
			p.Partition = number
			p.ErrorCode, p.ErrorMessage = r.codeOf(err)
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}
