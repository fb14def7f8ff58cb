package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// describeClientQuotas lists no quotas: weir has none.
func (s *Server) describeClientQuotas(_ context.Context, r *request, in *kmsg.DescribeClientQuotasRequest) *kmsg.DescribeClientQuotasResponse {
	out := in.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	if out.ErrorCode, out.ErrorMessage = codeOf(r.permitCluster(acl.DescribeConfigs)); out.ErrorCode != 0 {
		return out
	}
	out.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null would be an error (DescribeClientQuotasResponse.json)
	return out
}
