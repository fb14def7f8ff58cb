package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

// alterClientQuotas sets and removes quotas (KIP-546). What is asked for one entity is done as a whole or not at all. This server enforces a change from its answer on.
func (s *Server) alterClientQuotas(ctx context.Context, r *request, in *kmsg.AlterClientQuotasRequest) *kmsg.AlterClientQuotasResponse {
	out := in.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	refused := r.permitCluster(acl.AlterConfigs)
	if refused == nil && s.cfg.Quotas == nil {
		refused = errNoQuotas
	}
	changes, errs := make([]quota.Change, len(in.Entries)), make([]error, len(in.Entries))
	mentions := make(map[quota.Entity]int)
	for i, entry := range in.Entries {
		if errs[i] = refused; refused == nil {
			changes[i], errs[i] = quotaChange(entry)
		}
		if errs[i] == nil {
			mentions[changes[i].Entity]++
		}
	}
	var valid []quota.Change
	var of []int // of each of them, its index in the request
	for i, c := range changes {
		if errs[i] == nil && mentions[c.Entity] > 1 { // Kafka makes the first change, and answers with this error
			errs[i] = deny(kerr.InvalidRequest, "the entity is in this request %d times; send one entry for each entity", mentions[c.Entity])
		}
		if errs[i] == nil {
			valid, of = append(valid, c), append(of, i)
		}
	}
	if len(valid) > 0 {
		change := s.cfg.Quotas.Change
		if in.ValidateOnly {
			change = s.cfg.Quotas.Try
		}
		for at, err := range change(ctx, valid) {
			errs[of[at]] = err
		}
		s.quotas.Refresh(ctx)
	}
	for i, entry := range in.Entries {
		result := kmsg.NewAlterClientQuotasResponseEntry()
		result.ErrorCode, result.ErrorMessage = r.codeOf(s.quotaError(errs[i]))
		for _, p := range entry.Entity {
			part := kmsg.NewAlterClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.Type, p.Name
			result.Entity = append(result.Entity, part)
		}
		out.Entries = append(out.Entries, result)
	}
	return out
}

// quotaChange returns the change that a client asks for.
func quotaChange(entry kmsg.AlterClientQuotasRequestEntry) (quota.Change, error) {
	change := quota.Change{Set: make(map[quota.Kind]float64)}
	for _, p := range entry.Entity {
		var at *quota.Part
		switch p.Type {
		case entityUser:
			at = &change.Entity.User
		case entityClientID:
			at = &change.Entity.ClientID
		case entityIP:
			at = &change.Entity.IP
		default:
			return change, deny(kerr.InvalidRequest, "the entity type %q is unknown; user, client-id and ip are known", shorten(p.Type))
		}
		switch {
		case *at != quota.Part{}:
			return change, deny(kerr.InvalidRequest, "the entity has two names for %s", p.Type)
		case p.Name == nil:
			*at = quota.Default
		case *p.Name == "":
			return change, deny(kerr.InvalidRequest, "the name for %s is empty; null stands for the default", p.Type)
		default:
			*at = quota.Named(*p.Name)
		}
	}
	if name := quota.IPOf(change.Entity.IP.Name); name != "" {
		change.Entity.IP.Name = name
	}
	seen := make(map[string]bool)
	for _, op := range entry.Ops {
		if seen[op.Key] {
			return change, deny(kerr.InvalidRequest, "the quota %s is in this entry twice", shorten(op.Key))
		}
		seen[op.Key] = true
		if op.Remove {
			change.Unset = append(change.Unset, quota.Kind(op.Key))
		} else {
			change.Set[quota.Kind(op.Key)] = op.Value
		}
	}
	return change, nil
}

// quotaError gives an error about a quota its code, as in Kafka (ClientQuotaControlManager).
func (s *Server) quotaError(err error) error {
	invalid, ok := errors.AsType[*eventlog.InvalidError](err)
	switch {
	case err == nil:
		return nil
	case ok:
		return deny(kerr.InvalidRequest, "%v", invalid)
	case errors.Is(err, quota.ErrTooMany):
		return deny(kerr.PolicyViolation, "%v", err)
	case errors.Is(err, eventlog.ErrStale):
		return deny(kerr.KafkaStorageError, "another client changed the quotas of the entity at the same time, and this request did nothing; send it again")
	}
	s.trouble("AlterClientQuotas", err)
	return err
}
