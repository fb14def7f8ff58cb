package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups deletes groups without members, and their offsets.
func (s *Server) deleteGroups(ctx context.Context, _ *request, in *kmsg.DeleteGroupsRequest) *kmsg.DeleteGroupsResponse {
	out := in.ResponseKind().(*kmsg.DeleteGroupsResponse)
	mentions := make(map[string]bool)
	for _, name := range in.Groups {
		if !first(mentions, name) { // as in Kafka: KafkaApis.handleDeleteGroupsRequest makes them distinct
			continue
		}
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = name
		if err := s.groups.Delete(ctx, name); err != nil {
			s.trouble("DeleteGroups", err)
			g.ErrorCode, g.ErrorMessage = codeOf(err)
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}
