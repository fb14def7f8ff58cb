package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// groupType is the type of all groups here: those of the classic protocol.
const groupType = "classic"

// listGroups lists the groups that this broker coordinates: clients ask all brokers. From version 4
// on they are filtered by state (KIP-518), from 5 on by type (KIP-848).
func (s *Server) listGroups(ctx context.Context, r *request, in *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	out := in.ResponseKind().(*kmsg.ListGroupsResponse)
	if len(in.TypesFilter) > 0 && !slices.ContainsFunc(in.TypesFilter, func(t string) bool { return strings.EqualFold(t, groupType) }) {
		return out
	}
	var crowded error
	listed, err := s.groups.Select(ctx, group.Filter{
		Prefixes: group.AllPrefixes,
		States:   in.StatesFilter,
		Room:     func(bytes int) error { crowded = r.claimAnswer(ctx, bytes); return crowded },
	})
	if crowded != nil {
		return nil
	}
	if err != nil {
		s.trouble("ListGroups", err)
		out.ErrorCode = errorCode(err)
		return out
	}
	view := s.view()
	here := func(group string) bool {
		c := view.Coordinator(group)
		return view.Is(c) || view.AtOurAddress(c) // a client cannot choose which process it reaches at one address
	}
	all := r.may(acl.Describe, acl.Cluster, acl.ClusterName) // as in Kafka (KafkaApis.handleListGroupsRequest)
	for _, l := range listed {
		if !here(l.Group) || !all && !r.may(acl.Describe, acl.Group, l.Group) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.Group, l.ProtocolType, string(l.State), groupType
		out.Groups = append(out.Groups, g)
	}
	return out
}
