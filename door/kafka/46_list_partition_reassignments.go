package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// listPartitionReassignments lists partitions that are moving between brokers: never any, because
// every broker has all partitions. Kafka's own tool asks before it describes a topic.
func (s *Server) listPartitionReassignments(_ context.Context, r *request, in *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	out := in.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
	out.ErrorCode, out.ErrorMessage = codeOf(r.permitCluster(acl.Describe))
	return out
}
