package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// heartbeat keeps a member in its group; the answer's error code says when to rejoin.
func (s *Server) heartbeat(ctx context.Context, r *request, in *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	out := in.ResponseKind().(*kmsg.HeartbeatResponse)
	if err := r.permit(acl.Read, acl.Group, in.Group); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	err := s.coordinates(r, in.Group)
	if err == nil {
		err = s.groups.Heartbeat(ctx, group.Beat{Group: in.Group, Member: in.MemberID, Instance: orEmpty(in.InstanceID), Generation: in.Generation})
	}
	if err != nil {
		s.trouble("Heartbeat", err)
	}
	out.ErrorCode = errorCode(err)
	return out
}
