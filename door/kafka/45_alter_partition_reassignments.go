package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// alterPartitionReassignments, which kmsg calls AlterPartitionAssignments, moves partitions between
// brokers. A move to a broker that lives succeeds without work; there is nothing to cancel. Codes
// are Kafka's (ReplicationControlManager.alterPartitionReassignments).
func (s *Server) alterPartitionReassignments(ctx context.Context, r *request, in *kmsg.AlterPartitionAssignmentsRequest) *kmsg.AlterPartitionAssignmentsResponse {
	out := in.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	out.AllowReplicationFactorChange = in.AllowReplicationFactorChange
	if err := r.permitCluster(acl.Alter); err != nil {
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	mentions := make(map[askedPartition]bool)
	for _, asked := range in.Topics {
		t := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		t.Topic = asked.Topic
		topic, unknown := s.topicByName(ctx, r, acl.Describe, asked.Topic)
		for _, ask := range asked.Partitions {
			if !first(mentions, askedPartition{asked.Topic, ask.Partition}) {
				continue
			}
			err := unknown
			if err == nil {
				_, err = partitionOf(topic, ask.Partition)
			}
			if err == nil {
				err = s.checkReassigned(ask.Replicas)
			}
			if err != nil {
				s.refused(r, err)
			}
			p := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			p.Partition = ask.Partition
			p.ErrorCode, p.ErrorMessage = r.codeOf(err)
			t.Partitions = append(t.Partitions, p)
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// checkReassigned checks the brokers that a partition is to move to; null replicas cancel a move.
func (s *Server) checkReassigned(replicas []int32) error {
	if replicas == nil {
		return deny(kerr.NoReassignmentInProgress, "the partition is not being moved: partitions do not move, because every broker has them")
	}
	return s.checkReplicas(replicas)
}
