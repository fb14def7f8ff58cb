package kafka

import (
	"bytes"
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// syncGroup returns a member's assignment, once the leader's assignment is stored.
func (s *Server) syncGroup(ctx context.Context, r *request, in *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	out := in.ResponseKind().(*kmsg.SyncGroupResponse)
	if err := r.permit(acl.Read, acl.Group, in.Group); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	if in.Version >= 5 && (in.ProtocolType == nil || in.Protocol == nil) {
		out.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return out
	}
	sync := group.Sync{
		Group: in.Group, Member: in.MemberID, Instance: orEmpty(in.InstanceID), Generation: in.Generation,
		ProtocolType: orEmpty(in.ProtocolType), Protocol: orEmpty(in.Protocol),
		Assignments: make(map[string][]byte, len(in.GroupAssignment)),
	}
	for _, a := range in.GroupAssignment {
		sync.Assignments[a.MemberID] = bytes.Clone(a.MemberAssignment)
	}
	wait, done := r.conn.interruptible(ctx)
	defer done()
	defer r.waits()()
	var synced group.Synced
	err := s.coordinates(r, in.Group)
	if err == nil {
		synced, err = s.groups.Sync(wait, sync)
	}
	if err != nil {
		s.trouble("SyncGroup", err)
		out.ErrorCode = errorCode(err)
		return out
	}
	if err := r.claimAnswer(ctx, 2*len(synced.Assignment)); err != nil {
		return nil
	}
	out.ProtocolType, out.Protocol, out.MemberAssignment = &synced.ProtocolType, &synced.Protocol, synced.Assignment
	return out
}
