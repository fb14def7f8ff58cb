package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
)

// describeACLs answers as a Kafka broker without an authorizer (AclApis.handleDescribeAcls): there are no ACLs.
func (s *Server) describeACLs(_ context.Context, r *request, in *kmsg.DescribeACLsRequest) *kmsg.DescribeACLsResponse {
	out := in.ResponseKind().(*kmsg.DescribeACLsResponse)
	if err := r.permitCluster(acl.Describe); err != nil {
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	s.refused(r, errNoACLs)
	out.ErrorCode, out.ErrorMessage = codeOf(errNoACLs)
	return out
}

var errNoACLs = lacking("ACLs", kerr.SecurityDisabled, "there are no ACLs: a client may do what its API key allows, and at a listener without SASL everything")
