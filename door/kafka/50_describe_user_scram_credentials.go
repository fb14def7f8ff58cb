package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/user"
)

// scramMechanisms are KIP-554's numbers of the mechanisms.
var scramMechanisms = map[int8]user.Mechanism{1: user.SHA256, 2: user.SHA512}

var errNoUsers = deny(kerr.UnsupportedVersion, "this server has no users")

// describeUserSCRAMCredentials lists users and their numbers of iterations (KIP-554).
func (s *Server) describeUserSCRAMCredentials(ctx context.Context, r *request, in *kmsg.DescribeUserSCRAMCredentialsRequest) *kmsg.DescribeUserSCRAMCredentialsResponse {
	out := in.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	err := r.permitAccess(acl.Describe)
	if err == nil && s.cfg.Users == nil {
		err = errNoUsers
	}
	var all []user.User
	if err == nil {
		all, err = s.cfg.Users.List(ctx)
	}
	if err != nil {
		s.trouble("DescribeUserScramCredentials", err)
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	known := make(map[string]user.User, len(all))
	for _, u := range all {
		known[u.Name] = u
		if len(in.Users) == 0 { // all of them
			out.Results = append(out.Results, described(u))
		}
	}
	asked := make(map[string]int)
	for _, u := range in.Users {
		asked[u.Name]++
	}
	for _, u := range in.Users {
		result := described(known[u.Name])
		result.User = u.Name
		switch n := asked[u.Name]; {
		case n == 0: // answered already
			continue
		case n > 1: // as in Kafka (ScramImage.describe)
			result.CredentialInfos = nil
			result.ErrorCode, result.ErrorMessage = r.codeOf(deny(kerr.DuplicateResource, "a user cannot be described twice in one request"))
		case len(result.CredentialInfos) == 0:
			result.ErrorCode, result.ErrorMessage = r.codeOf(deny(kerr.ResourceNotFound, "there is no such user"))
		}
		asked[u.Name] = 0
		out.Results = append(out.Results, result)
	}
	return out
}

func described(u user.User) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	result := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	result.User = u.Name
	for number := int8(1); int(number) <= len(scramMechanisms); number++ {
		if n, ok := u.Iterations[scramMechanisms[number]]; ok {
			info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
			info.Mechanism, info.Iterations = number, int32(n)
			result.CredentialInfos = append(result.CredentialInfos, info)
		}
	}
	return result
}
