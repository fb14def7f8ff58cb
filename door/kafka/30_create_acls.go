package kafka

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// createACLs stores rules (KIP-140, KIP-290). Each rule is stored, or gets an error of its own. A
// rule that exists is no error, as in Kafka.
func (s *Server) createACLs(ctx context.Context, r *request, in *kmsg.CreateACLsRequest) *kmsg.CreateACLsResponse {
	out := in.ResponseKind().(*kmsg.CreateACLsResponse)
	refused := s.permitAlterACLs(r)
	errs := make([]error, len(in.Creations))
	var valid []acl.Binding
	var of []int // for each of valid, its index in the request
	for i, c := range in.Creations {
		b, err := bindingOf(c)
		if refused != nil {
			err = refused
		}
		if err != nil {
			errs[i] = err
			continue
		}
		valid, of = append(valid, b), append(of, i)
	}
	if len(valid) > 0 {
		for at, err := range s.cfg.ACLs.Create(ctx, valid) {
			errs[of[at]] = err
		}
	}
	var said saidOnce
	for _, err := range errs {
		result := kmsg.NewCreateACLsResponseResult()
		result.ErrorCode, result.ErrorMessage = said.first(r.codeOf(s.aclError(err)))
		out.Results = append(out.Results, result)
	}
	return out
}

// saidOnce leaves out the text of an error that follows an error with the same text, so that an
// answer is not much larger than its request.
type saidOnce struct{ last string }

func (o *saidOnce) first(code int16, message *string) (int16, *string) {
	if message == nil || *message == o.last {
		return code, nil
	}
	o.last = *message
	return code, message
}

// permitAlterACLs returns nil if the client may change rules.
func (s *Server) permitAlterACLs(r *request) error {
	if err := r.permitCluster(acl.Alter); err != nil {
		return err
	}
	if s.cfg.ACLs == nil {
		s.refused(r, errNoACLs)
		return errNoACLs
	}
	return nil
}

// bindingOf returns the rule that a client asks for.
func bindingOf(c kmsg.CreateACLsRequestCreation) (acl.Binding, error) {
	b := acl.Binding{Principal: c.Principal, Host: acl.HostOf(c.Host), Rule: acl.Rule{
		Kind: acl.Kind(c.ResourceType), Name: c.ResourceName, Operation: acl.Operation(c.Operation),
		Prefixed: c.ResourcePatternType == kmsg.ACLResourcePatternTypePrefixed, Deny: c.PermissionType == kmsg.ACLPermissionTypeDeny,
	}}
	if !b.Prefixed && c.ResourcePatternType != kmsg.ACLResourcePatternTypeLiteral {
		return b, &eventlog.InvalidError{What: "pattern type of an ACL", Value: strconv.Itoa(int(c.ResourcePatternType)), Why: "3 (LITERAL) and 4 (PREFIXED) are allowed"}
	}
	if !b.Deny && c.PermissionType != kmsg.ACLPermissionTypeAllow {
		return b, &eventlog.InvalidError{What: "permission type of an ACL", Value: strconv.Itoa(int(c.PermissionType)), Why: "2 (DENY) and 3 (ALLOW) are allowed"}
	}
	return b, nil
}
