package kafka

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// listConfigResources lists resources that have settings: topics, groups that were given some, and
// this broker. Version 0 lists client metrics only: weir has none.
func (s *Server) listConfigResources(ctx context.Context, request *request, in *kmsg.ListConfigResourcesRequest) *kmsg.ListConfigResourcesResponse {
	out := in.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	if err := request.permitCluster(acl.DescribeConfigs); err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	if in.Version == 0 {
		return out
	}
	add := func(kind kmsg.ConfigResourceType, name string) {
		if len(in.ResourceTypes) > 0 && !slices.Contains(in.ResourceTypes, int8(kind)) {
			return
		}
		r := kmsg.NewListConfigResourcesResponseConfigResource()
		r.Name, r.Type = name, int8(kind)
		out.ConfigResources = append(out.ConfigResources, r)
	}
	groups, err := s.groups.GroupConfigs(ctx)
	if err != nil {
		out.ErrorCode = errorCode(err)
		return out
	}
	const each = 128 // estimated bytes of a resource in the answer, in memory and encoded
	if err := request.claimAnswer(ctx, (len(s.log.Topics())+len(groups))*each); err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		add(kmsg.ConfigResourceTypeGroupConfig, name)
	}
	for _, t := range s.log.Topics() {
		add(kmsg.ConfigResourceTypeTopic, t.Name)
	}
	add(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(s.view().Self())))
	return out
}
