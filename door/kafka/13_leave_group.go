package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// leaveGroup removes members: the caller or, from version 3 on, any number, also static ones by
// their instance id.
func (s *Server) leaveGroup(ctx context.Context, r *request, in *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	out := in.ResponseKind().(*kmsg.LeaveGroupResponse)
	if err := r.permit(acl.Read, acl.Group, in.Group); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	var leavers []group.Leaver
	if in.Version < 3 {
		leavers = append(leavers, group.Leaver{Member: in.MemberID})
	}
	for _, m := range in.Members {
		leavers = append(leavers, group.Leaver{Member: m.MemberID, Instance: orEmpty(m.InstanceID), Reason: orEmpty(m.Reason)})
	}
	errs, err := s.groups.Leave(ctx, in.Group, leavers)
	if err != nil {
		s.trouble("LeaveGroup", err)
		out.ErrorCode = errorCode(err)
		return out
	}
	if in.Version < 3 {
		out.ErrorCode = errorCode(errs[0])
		return out
	}
	for i, m := range in.Members {
		row := kmsg.NewLeaveGroupResponseMember()
		row.MemberID, row.InstanceID, row.ErrorCode = m.MemberID, m.InstanceID, errorCode(errs[i])
		out.Members = append(out.Members, row)
	}
	return out
}
