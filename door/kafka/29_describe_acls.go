package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeACLs answers as a Kafka broker without an authorizer (AclApis.handleDescribeAcls): there are no ACLs.
func (s *Server) describeACLs(_ context.Context, r *request, in *kmsg.DescribeACLsRequest) *kmsg.DescribeACLsResponse {
	out := in.ResponseKind().(*kmsg.DescribeACLsResponse)
	s.refused(r, errNoACLs)
	out.ErrorCode, out.ErrorMessage = codeOf(errNoACLs)
	return out
}

var errNoACLs = lacking("ACLs", kerr.SecurityDisabled, "there are no ACLs: every Kafka client may do everything")
