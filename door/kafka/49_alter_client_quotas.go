package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

// alterClientQuotas sets and removes quotas (KIP-546). What is asked for one entity is done as a
// whole or not at all. This server enforces a change from its answer on.
func (s *Server) alterClientQuotas(ctx context.Context, r *request, in *kmsg.AlterClientQuotasRequest) *kmsg.AlterClientQuotasResponse {
	out := in.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	refused := r.permitCluster(acl.AlterConfigs)
	if refused == nil && s.cfg.Quotas == nil {
		refused = errNoQuotas
	}
	asked, index := quotaChanges(in.Entries), make(map[string]int)
	var entries []askedQuota // each is for another entity, which is answered once
	for _, a := range asked {
		at, again := index[a.entity]
		if !again {
			at = len(entries)
			index[a.entity], entries = at, append(entries, a)
		}
		entries[at].mentions++
	}
	var valid []quota.Change
	var of []int // for each of valid, its index in entries
	for i := range entries {
		a := &entries[i]
		switch {
		case refused != nil:
			a.err = refused
		case a.mentions > 1: // Kafka makes the first change, and answers with this error
			a.err = deny(kerr.InvalidRequest, "the entity is in this request %d times; send one entry for each entity", a.mentions)
		}
		if a.err == nil {
			valid, of = append(valid, a.change), append(of, i)
		}
	}
	if len(valid) > 0 {
		change := s.cfg.Quotas.Change
		if in.ValidateOnly {
			change = s.cfg.Quotas.Try
		}
		for at, err := range change(ctx, valid) {
			entries[of[at]].err = err
		}
		s.quotas.Refresh(ctx)
	}
	for _, a := range entries {
		result := kmsg.NewAlterClientQuotasResponseEntry()
		result.ErrorCode, result.ErrorMessage = r.codeOf(s.quotaError(a.err))
		for _, p := range a.parts {
			part := kmsg.NewAlterClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.kind, p.name
			result.Entity = append(result.Entity, part)
		}
		out.Entries = append(out.Entries, result)
	}
	return out
}

// askedQuota is an entry of a request.
type askedQuota struct {
	parts    []entityPart // the parts of its entity, each once
	entity   string       // the same for all entries of an entity, and for no other
	mentions int          // how many entries of the request are for its entity

	change quota.Change
	err    error // why there is no change
}

func quotaChanges(entries []kmsg.AlterClientQuotasRequestEntry) []askedQuota {
	all := make([]askedQuota, len(entries))
	for i, entry := range entries {
		a := &all[i]
		seen := make(map[string]bool)
		for _, p := range entry.Entity {
			one := fmt.Sprintf("%q default", p.Type)
			if p.Name != nil {
				one = fmt.Sprintf("%q named %q", p.Type, *p.Name)
			}
			if !seen[one] { // as in Kafka, where the parts of an entity are a map (AlterClientQuotasRequest.entries)
				a.parts = append(a.parts, entityPart{p.Type, p.Name})
			}
			seen[one] = true
		}
		a.entity = strings.Join(slices.Sorted(maps.Keys(seen)), ", ")
		a.change, a.err = quotaChange(a.parts, entry.Ops)
	}
	return all
}

// quotaChange returns the change that a client asks for.
func quotaChange(parts []entityPart, ops []kmsg.AlterClientQuotasRequestEntryOp) (quota.Change, error) {
	change := quota.Change{Set: make(map[quota.Kind]float64)}
	for _, p := range parts {
		var at *quota.Part
		switch p.kind {
		case entityUser:
			at = &change.Entity.User
		case entityClientID:
			at = &change.Entity.ClientID
		case entityIP:
			at = &change.Entity.IP
		default:
			return change, deny(kerr.InvalidRequest, "the entity type %q is unknown; user, client-id and ip are known", shorten(p.kind))
		}
		switch {
		case *at != quota.Part{}:
			return change, deny(kerr.InvalidRequest, "the entity has two names for %s", p.kind)
		case p.name == nil:
			*at = quota.Default
		case *p.name == "":
			return change, deny(kerr.InvalidRequest, "the name for %s is empty; null stands for the default", p.kind)
		default:
			*at = quota.Named(*p.name)
		}
	}
	change.Entity = change.Entity.Normal()
	seen := make(map[string]bool)
	for _, op := range ops {
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
	}
	s.trouble("AlterClientQuotas", err)
	return err
}
