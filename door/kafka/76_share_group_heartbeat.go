package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var errShareGroups = lacking("share groups", kerr.UnsupportedVersion, "weir has no share groups: use a consumer group, or a work queue")

// shareGroupHeartbeat refuses members of share groups (KIP-932), for the reason of
// consumerGroupHeartbeat.
func (s *Server) shareGroupHeartbeat(_ context.Context, r *request, in *kmsg.ShareGroupHeartbeatRequest) *kmsg.ShareGroupHeartbeatResponse {
	out := in.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	s.refused(r, errShareGroups)
	out.ErrorCode, out.ErrorMessage = r.codeOf(errShareGroups)
	return out
}
