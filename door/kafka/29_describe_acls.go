package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// describeACLs lists the rules that a filter finds (KIP-140, KIP-290).
func (s *Server) describeACLs(ctx context.Context, r *request, in *kmsg.DescribeACLsRequest) *kmsg.DescribeACLsResponse {
	out := in.ResponseKind().(*kmsg.DescribeACLsResponse)
	err := r.permitAccess(acl.Describe)
	var found []acl.Binding
	switch {
	case err != nil:
	case s.cfg.ACLs == nil:
		s.refused(r, errNoACLs)
		err = errNoACLs
	default:
		found, err = s.cfg.ACLs.List(ctx, filterOf(in.ResourceType, in.ResourcePatternType, in.ResourceName, in.Principal, in.Host, in.Operation, in.PermissionType))
		err = s.aclError(err)
	}
	if err != nil {
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	for i, b := range found { // those of a resource follow each other
		if i == 0 || b.Kind != found[i-1].Kind || b.Name != found[i-1].Name || b.Prefixed != found[i-1].Prefixed {
			resource := kmsg.NewDescribeACLsResponseResource()
			resource.ResourceType, resource.ResourceName, resource.ResourcePatternType = kmsg.ACLResourceType(b.Kind), b.Name, patternOf(b)
			out.Resources = append(out.Resources, resource)
		}
		one := kmsg.NewDescribeACLsResponseResourceACL()
		one.Principal, one.Host, one.Operation, one.PermissionType = b.Principal, b.Host, kmsg.ACLOperation(b.Operation), kmsg.ACLPermissionType(b.Effect())
		last := &out.Resources[len(out.Resources)-1]
		last.ACLs = append(last.ACLs, one)
	}
	return out
}

var errNoACLs = lacking("ACLs", kerr.SecurityDisabled, "there are no ACLs: a client may do what its API key allows, and at a listener without SASL everything")

func filterOf(kind kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, name, principal, host *string, op kmsg.ACLOperation, effect kmsg.ACLPermissionType) acl.Filter {
	return acl.Filter{
		Kind: acl.Kind(kind), Pattern: acl.Pattern(pattern), Name: name, Principal: principal, Host: host, Operation: acl.Operation(op), Effect: acl.Effect(effect),
	}
}

func patternOf(b acl.Binding) kmsg.ACLResourcePatternType {
	if b.Prefixed {
		return kmsg.ACLResourcePatternTypePrefixed
	}
	return kmsg.ACLResourcePatternTypeLiteral
}

// aclError gives an error about a rule its code, as in Kafka (AclApis, AclControlManager).
func (s *Server) aclError(err error) error {
	invalid, ok := errors.AsType[*eventlog.InvalidError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return deny(kerr.InvalidRequest, "%v", invalid)
	case errors.Is(err, acl.ErrTooMany):
		return deny(kerr.PolicyViolation, "%v", err)
	}
	s.trouble("ACLs", err)
	return err
}
