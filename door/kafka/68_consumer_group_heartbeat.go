package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var errConsumerProtocol = lacking("group.protocol=consumer", kerr.UnsupportedVersion, "weir has only the classic group protocol: set group.protocol=classic")

// consumerGroupHeartbeat refuses members of the group protocol of KIP-848, as a broker of Kafka
// does that is configured without it (KafkaApis.handleConsumerGroupHeartbeat). If the key were not
// advertised, librdkafka would wait for ever without an error; after this answer it fails at once,
// and franz-go goes on with the classic protocol.
func (s *Server) consumerGroupHeartbeat(_ context.Context, r *request, in *kmsg.ConsumerGroupHeartbeatRequest) *kmsg.ConsumerGroupHeartbeatResponse {
	out := in.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
	s.refused(r, errConsumerProtocol)
	out.ErrorCode, out.ErrorMessage = r.codeOf(errConsumerProtocol)
	return out
}
