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
	var names []string
	var rows []int // for each of names, its row in the answer
	refuse := func(row int, err error) {
		if err != nil {
			s.trouble("DeleteGroups", err)
			out.Groups[row].ErrorCode, out.Groups[row].ErrorMessage = r.codeOf(err)
		}
	}
	for _, name := range in.Groups {
		if !first(mentions, name) { // as in Kafka: KafkaApis.handleDeleteGroupsRequest makes them distinct
			continue
		}
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group = name
		out.Groups = append(out.Groups, g)
		if err := r.permit(acl.Delete, acl.Group, name); err != nil {
			refuse(len(out.Groups)-1, err)
		} else {
			names, rows = append(names, name), append(rows, len(out.Groups)-1)
		}
	}
	for i, err := range s.groups.DeleteEach(ctx, names) {
		refuse(rows[i], err)
	}
	return out
}
