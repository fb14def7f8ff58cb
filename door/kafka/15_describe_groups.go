package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// describeGroups returns the state and members of groups. Before version 6 an unknown group has the
// state Dead (KIP-1043).
func (s *Server) describeGroups(ctx context.Context, r *request, in *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	out := in.ResponseKind().(*kmsg.DescribeGroupsResponse)
	mentions := make(map[string]bool)
	for _, name := range in.Groups {
		if !first(mentions, name) {
			continue
		}
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group = name
		if err := r.permit(acl.Describe, acl.Group, name); err != nil {
			g.State = string(group.Dead)
			g.ErrorCode, g.ErrorMessage = codeOf(err)
			out.Groups = append(out.Groups, g)
			continue
		}
		d, err := s.groups.Describe(ctx, name)
		switch {
		case errors.Is(err, group.ErrNotFound) && in.Version < 6:
			g.State = string(d.State)
		case err != nil:
			s.trouble("DescribeGroups", err)
			g.State = string(d.State)
			g.ErrorCode, g.ErrorMessage = codeOf(err)
		default:
			size := len(d.ProtocolType) + len(d.Protocol)
			for _, m := range d.Members {
				size += memberCost + 2*(len(m.ID)+len(m.Instance)+len(m.ClientID)+len(m.ClientHost)+len(m.Metadata)+len(m.Assignment))
			}
			if err := r.claimAnswer(ctx, size); err != nil {
				return nil
			}
			describeGroup(&g, d)
		}
		if in.IncludeAuthorizedOperations && err == nil {
			g.AuthorizedOperations = r.operations(groupOperations, acl.Group, name)
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

// memberCost estimates the bytes of a member in an answer, in memory and encoded, without its ids,
// metadata and assignment.
const memberCost = 512

func describeGroup(g *kmsg.DescribeGroupsResponseGroup, d group.Described) {
	g.State, g.ProtocolType, g.Protocol = string(d.State), d.ProtocolType, d.Protocol
	for _, m := range d.Members {
		row := kmsg.NewDescribeGroupsResponseGroupMember()
		row.MemberID, row.InstanceID, row.ClientID, row.ClientHost = m.ID, orNil(m.Instance), m.ClientID, m.ClientHost
		row.ProtocolMetadata, row.MemberAssignment = m.Metadata, m.Assignment
		g.Members = append(g.Members, row)
	}
}
