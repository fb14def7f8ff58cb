package kafka

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/user"
)

// alterUserSCRAMCredentials sets and deletes users' credentials (KIP-554). The client has salted
// the passwords. What is asked for one user is done as a whole or not at all.
func (s *Server) alterUserSCRAMCredentials(ctx context.Context, r *request, in *kmsg.AlterUserSCRAMCredentialsRequest) *kmsg.AlterUserSCRAMCredentialsResponse {
	out := in.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	refused := r.permitCluster(acl.Alter)
	if refused == nil && s.cfg.Users == nil {
		refused = errNoUsers
	}
	var changes []user.Change
	var errs []error              // the error of each change
	index := make(map[string]int) // by user: the index in changes
	add := func(name string, mechanism int8, change func(*user.Change, user.Mechanism) error) {
		i, ok := index[name]
		if !ok {
			i = len(changes)
			index[name] = i
			changes, errs = append(changes, user.Change{Name: name, Set: make(map[user.Mechanism]user.Credential)}), append(errs, refused)
		}
		if errs[i] != nil {
			return
		}
		m, ok := scramMechanisms[mechanism]
		_, set := changes[i].Set[m]
		switch {
		case !ok:
			errs[i] = deny(kerr.UnsupportedSaslMechanism, "mechanism %d is unknown; 1 (SCRAM-SHA-256) and 2 (SCRAM-SHA-512) are known", mechanism)
		case set, slices.Contains(changes[i].Unset, m): // as in Kafka (ScramControlManager)
			errs[i] = deny(kerr.DuplicateResource, "a user's credential cannot be altered twice in one request")
		default:
			errs[i] = change(&changes[i], m)
		}
	}
	for _, d := range in.Deletions {
		add(d.Name, d.Mechanism, func(c *user.Change, m user.Mechanism) error {
			c.Unset = append(c.Unset, m)
			return nil
		})
	}
	for _, u := range in.Upsertions {
		add(u.Name, u.Mechanism, func(c *user.Change, m user.Mechanism) (err error) {
			c.Set[m], err = user.FromSalted(m, u.Salt, u.SaltedPassword, int(u.Iterations))
			return err
		})
	}
	var valid []user.Change
	var of []int // for each of valid, its index in changes
	for i, c := range changes {
		if errs[i] == nil {
			valid, of = append(valid, c), append(of, i)
		}
	}
	if len(valid) > 0 {
		for at, err := range s.cfg.Users.Change(ctx, valid) {
			errs[of[at]] = err
		}
	}
	for i, c := range changes {
		result := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		result.User = c.Name
		result.ErrorCode, result.ErrorMessage = r.codeOf(s.userError(errs[i]))
		out.Results = append(out.Results, result)
	}
	return out
}

// userError gives an error about a user its code, as in Kafka (ScramControlManager).
func (s *Server) userError(err error) error {
	invalid, ok := errors.AsType[*eventlog.InvalidError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return deny(kerr.UnacceptableCredential, "%v", invalid)
	case errors.Is(err, user.ErrUnknown):
		return deny(kerr.ResourceNotFound, "there is no such credential to delete")
	case errors.Is(err, user.ErrTooMany):
		return deny(kerr.PolicyViolation, "%v", err)
	}
	s.trouble("AlterUserScramCredentials", err)
	return err
}
