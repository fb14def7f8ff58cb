package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// describeGroups returns the state and members of groups. Before version 6 an unknown group has the
// state Dead (KIP-1043).
func (s *Server) describeGroups(ctx context.Context, r *request, in *kmsg.DescribeGroupsRequest) *kmsg.DescribeGroupsResponse {
	out := in.ResponseKind().(*kmsg.DescribeGroupsResponse)
	all := s.describeEach(ctx, r, in.Groups, func(name string, err error) {
		g := kmsg.NewDescribeGroupsResponseGroup()
		g.Group, g.State = name, string(group.Dead)
		g.ErrorCode, g.ErrorMessage = codeOf(err)
		out.Groups = append(out.Groups, g)
	}, func(row int, d group.Described, err error) bool {
		g := &out.Groups[row]
		if err == nil && d.Consumer { // as in Kafka (GroupMetadataManager.describeGroups): tools ask with ConsumerGroupDescribe
			d, err = group.Described{State: group.Dead}, fmt.Errorf("%w: group %q is of the consumer protocol: describe it with ConsumerGroupDescribe", group.ErrNotFound, g.Group)
		}
		switch {
		case errors.Is(err, group.ErrNotFound) && in.Version < 6:
		case err != nil:
			s.trouble("DescribeGroups", err)
			g.State = string(d.State)
			g.ErrorCode, g.ErrorMessage = codeOf(inWords(err))
		default:
			size := len(d.ProtocolType) + len(d.Protocol)
			for _, m := range d.Members {
				size += memberCost + 2*(len(m.ID)+len(m.Instance)+len(m.ClientID)+len(m.ClientHost)+len(m.Metadata)+len(m.Assignment))
			}
			if r.claimAnswer(ctx, size) != nil {
				return false
			}
			describeGroup(g, d)
		}
		if in.IncludeAuthorizedOperations && err == nil {
			g.AuthorizedOperations = r.operations(groupOperations, acl.Group, g.Group)
		}
		return true
	})
	if !all {
		return nil
	}
	return out
}

// describeEach describes groups, each once. begin begins a row of the answer, with the error that
// refuses it or nil; show completes a row that is not refused. If a call of show returns false,
// describeEach ends, and all is false.
func (s *Server) describeEach(ctx context.Context, r *request, groups []string, begin func(name string, err error), show func(row int, d group.Described, err error) bool) (all bool) {
	mentions := make(map[string]bool)
	var names []string
	var rows []int // for each of names, its row in the answer
	for _, name := range groups {
		if !first(mentions, name) {
			continue
		}
		err := r.permit(acl.Describe, acl.Group, name)
		if err == nil {
			names, rows = append(names, name), append(rows, len(mentions)-1)
		}
		begin(name, err)
	}
	all = true
	s.groups.DescribeEach(ctx, names, func(d group.Described, err error) bool {
		all = show(rows[0], d, err)
		rows = rows[1:]
		return all
	})
	return all
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
