package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// deleteGroups deletes groups without members, and their offsets.
func (s *Server) deleteGroups(ctx context.Context, r *request, in *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	out := in.ResponseKind().(*kmsg.DeleteGroupsResponse)
	mentions := make(map[string]bool)
	for _, name := range in.Groups {
		if !first(mentions, name) { // as in Kafka: KafkaApis.handleDeleteGroupsRequest makes them distinct
			continue
		}
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = name
		err := r.permit(acl.Delete, acl.Group, name)
		if err == nil {
			err = s.groups.Delete(ctx, name)
		}
		if err != nil {
			s.trouble("DeleteGroups", err)
			g.ErrorCode, g.ErrorMessage = codeOf(err)
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}
