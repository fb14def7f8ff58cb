package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// listPartitionReassignments lists partitions that are moving between brokers: never any, because there is one broker. Kafka's own tool
// asks before it describes a topic.
func (s *Server) listPartitionReassignments(_ context.Context, _ *request, in *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	return in.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
}
