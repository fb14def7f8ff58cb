package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeClientQuotas lists no quotas: weir has none.
func (s *Server) describeClientQuotas(_ context.Context, _ *request, in *kmsg.DescribeClientQuotasRequest) *kmsg.DescribeClientQuotasResponse {
	out := in.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	out.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null would be an error (DescribeClientQuotasResponse.json)
	return out
}
