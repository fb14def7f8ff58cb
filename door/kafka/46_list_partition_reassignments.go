package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListPartitionReassignments lists partitions on their way from broker to broker: never any, for there is one. Kafka's own tool asks
// before it describes a topic.
func (s *Server) listPartitionReassignments(_ context.Context, _ *request, in *kmsg.ListPartitionReassignmentsRequest) *kmsg.ListPartitionReassignmentsResponse {
	return in.ResponseKind().(*kmsg.ListPartitionReassignmentsResponse)
}
