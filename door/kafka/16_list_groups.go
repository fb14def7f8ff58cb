package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/group"
)

// typeOf is the type of a group: consumer, if members of that protocol (KIP-848) are in it.
func typeOf(l group.Listed) string {
	if l.Consumer {
		return "consumer"
	}
	return "classic"
}

// listGroups lists the groups that this broker coordinates: clients ask all brokers. From version 4
// on they are filtered by state (KIP-518), from 5 on by type (KIP-848).
func (s *Server) listGroups(ctx context.Context, r *request, in *kmsg.ListGroupsRequest) *kmsg.ListGroupsResponse {
	out := in.ResponseKind().(*kmsg.ListGroupsResponse)
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
	wanted := func(l group.Listed) bool {
		return len(in.TypesFilter) == 0 || slices.ContainsFunc(in.TypesFilter, func(t string) bool { return strings.EqualFold(t, typeOf(l)) })
	}
	for _, l := range listed {
		if !wanted(l) || !here(l.Group) || !all && !r.may(acl.Describe, acl.Group, l.Group) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = l.Group, l.ProtocolType, string(l.State), typeOf(l)
		out.Groups = append(out.Groups, g)
	}
	return out
}
