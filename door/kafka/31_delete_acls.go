package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// filtersMax bounds the filters of a request: its answer may have all rules for each of them.
const filtersMax = 100

// deleteACLs deletes the rules that filters find, and tells which (KIP-140, KIP-290).
func (s *Server) deleteACLs(ctx context.Context, r *request, in *kmsg.DeleteACLsRequest) *kmsg.DeleteACLsResponse {
	out := in.ResponseKind().(*kmsg.DeleteACLsResponse)
	refused := s.permitAlterACLs(r)
	if refused == nil && len(in.Filters) > filtersMax {
		refused = deny(kerr.InvalidRequest, "the request has %d filters; the limit is %d, and nothing was deleted: send several requests", len(in.Filters), filtersMax)
	}
	done := make([]acl.Deleted, len(in.Filters))
	if refused == nil {
		var filters []acl.Filter
		for _, f := range in.Filters {
			filters = append(filters, filterOf(f.ResourceType, f.ResourcePatternType, f.ResourceName, f.Principal, f.Host, f.Operation, f.PermissionType))
		}
		done = s.cfg.ACLs.Delete(ctx, filters)
	}
	var said saidOnce
	for _, d := range done {
		result := kmsg.NewDeleteACLsResponseResult()
		if refused != nil {
			d.Err = refused
		}
		result.ErrorCode, result.ErrorMessage = said.first(r.codeOf(s.aclError(d.Err)))
		for i, b := range d.Rules {
			one := kmsg.NewDeleteACLsResponseResultMatchingACL()
			one.ErrorCode, one.ErrorMessage = r.codeOf(s.aclError(d.Errs[i]))
			one.ResourceType, one.ResourceName, one.ResourcePatternType = kmsg.ACLResourceType(b.Kind), b.Name, patternOf(b)
			one.Principal, one.Host, one.Operation, one.PermissionType = b.Principal, b.Host, kmsg.ACLOperation(b.Operation), kmsg.ACLPermissionType(b.Effect())
			result.MatchingACLs = append(result.MatchingACLs, one)
		}
		out.Results = append(out.Results, result)
	}
	return out
}
