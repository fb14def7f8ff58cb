package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var errShareGroups = lacking("share groups", kerr.UnsupportedVersion, "weir has no share groups: use a consumer group, or a work queue")

// shareGroupHeartbeat refuses members of share groups (KIP-932), as a broker of Kafka does that is
// configured without them (KafkaApis.handleShareGroupHeartbeat). If the key were not advertised,
// librdkafka would wait for ever without an error; after this answer it fails at once.
func (s *Server) shareGroupHeartbeat(_ context.Context, r *request, in *kmsg.ShareGroupHeartbeatRequest) *kmsg.ShareGroupHeartbeatResponse {
	out := in.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	s.refused(r, errShareGroups)
	out.ErrorCode, out.ErrorMessage = r.codeOf(errShareGroups)
	return out
}
