package kafka

import (
	"bytes"
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// joinGroup adds a member, and waits until the group's next generation begins.
func (s *Server) joinGroup(ctx context.Context, r *request, in *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	out := in.ResponseKind().(*kmsg.JoinGroupResponse)
	if err := r.permit(acl.Read, acl.Group, in.Group); err != nil {
		out.ErrorCode, out.Generation, out.MemberID = errorCode(err), -1, in.MemberID
		return out
	}
	join := group.Join{
		Group: in.Group, Member: in.MemberID, Instance: orEmpty(in.InstanceID),
		ClientID: r.clientID, ClientHost: r.host(),
		Session:      time.Duration(in.SessionTimeoutMillis) * time.Millisecond,
		Rebalance:    time.Duration(in.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType: in.ProtocolType, Reason: orEmpty(in.Reason), By: r.conn.who.Load().id(),
		// From version 4 on a client can join in two steps (KIP-394), from version 9 on it can be
		// the leader without computing the assignment (KIP-814).
		NeedsMemberID: in.Version >= 4, SkipsAssigning: in.Version >= 9,
	}
	for _, p := range in.Protocols {
		join.Protocols = append(join.Protocols, group.Protocol{Name: p.Name, Metadata: bytes.Clone(p.Metadata)})
	}
	wait, done := r.conn.interruptible(ctx)
	defer done()
	defer r.waits()()
	var joined group.Joined
	err := s.coordinates(r, in.Group)
	if err == nil {
		joined, err = s.groups.Join(wait, join)
	}
	if err != nil {
		s.trouble("JoinGroup", err)
		out.ErrorCode, out.Generation, out.MemberID = errorCode(err), -1, joined.Member
		return out
	}
	size := 0
	for _, m := range joined.Members {
		size += memberCost + 2*(len(m.Member)+len(m.Instance)+len(m.Metadata))
	}
	if err := r.claimAnswer(ctx, size); err != nil {
		return nil
	}
	out.Generation, out.MemberID, out.LeaderID, out.SkipAssignment = joined.Generation, joined.Member, joined.Leader, joined.SkipAssignment
	out.ProtocolType, out.Protocol = &joined.ProtocolType, &joined.Protocol
	for _, m := range joined.Members {
		row := kmsg.NewJoinGroupResponseMember()
		row.MemberID, row.InstanceID, row.ProtocolMetadata = m.Member, orNil(m.Instance), m.Metadata
		out.Members = append(out.Members, row)
	}
	return out
}
