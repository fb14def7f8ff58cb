package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/quota"
)

// The parts of an entity, by Kafka's names (ClientQuotaEntity).
const (
	entityUser     = "user"
	entityClientID = "client-id"
	entityIP       = "ip"
)

// describeClientQuotas lists the quotas that a filter finds (KIP-546).
func (s *Server) describeClientQuotas(ctx context.Context, r *request, in *kmsg.DescribeClientQuotasRequest) *kmsg.DescribeClientQuotasResponse {
	out := in.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	err := r.permitAccess(acl.DescribeConfigs)
	var filter quota.Filter
	if err == nil {
		filter, err = quotaFilter(in)
	}
	var found []quota.Quota
	if err == nil && s.cfg.Quotas != nil {
		found, err = s.cfg.Quotas.List(ctx, filter)
	}
	if err != nil {
		s.trouble("DescribeClientQuotas", err)
		out.ErrorCode, out.ErrorMessage = codeOf(err)
		return out
	}
	out.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null would be an error (DescribeClientQuotasResponse.json)
	for _, q := range found {
		entry := kmsg.NewDescribeClientQuotasResponseEntry()
		for _, p := range partsOf(q.Entity) {
			part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
			part.Type, part.Name = p.kind, p.name
			entry.Entity = append(entry.Entity, part)
		}
		for _, k := range quota.Kinds {
			if limit, ok := q.Limits[k]; ok {
				value := kmsg.NewDescribeClientQuotasResponseEntryValue()
				value.Key, value.Value = string(k), limit
				entry.Values = append(entry.Values, value)
			}
		}
		out.Entries = append(out.Entries, entry)
	}
	return out
}

// quotaFilter returns the filter that a client asks for. The conditions are Kafka's
// (ClientQuotasImage.describe). Without a condition, a strict filter finds nothing.
func quotaFilter(in *kmsg.DescribeClientQuotasRequest) (quota.Filter, error) {
	filter := quota.All
	filter.Strict = in.Strict
	for _, c := range in.Components {
		var at *quota.Component
		switch c.EntityType {
		case entityUser:
			at = &filter.User
		case entityClientID:
			at = &filter.ClientID
		case entityIP:
			at = &filter.IP
		case "":
			return filter, deny(kerr.InvalidRequest, "an entity type is empty; user, client-id and ip are known")
		default:
			return filter, deny(kerr.UnsupportedVersion, "the entity type %q is unknown; user, client-id and ip are known", shorten(c.EntityType))
		}
		match := quota.Match(c.MatchType)
		switch {
		case *at != quota.Whatever:
			return filter, deny(kerr.InvalidRequest, "the entity type %s is in the filter twice", c.EntityType)
		case match < quota.Exact || match > quota.AnyPart:
			return filter, deny(kerr.InvalidRequest, "the match type %d is unknown; 0 (exact), 1 (default) and 2 (any) are known", match)
		case match == quota.Exact && c.Match == nil:
			return filter, deny(kerr.InvalidRequest, "the match type of %s is 0 (exact), and there is no name to match", c.EntityType)
		case match != quota.Exact && c.Match != nil:
			return filter, deny(kerr.InvalidRequest, "the match type of %s is %d, which takes no name, and there is one", c.EntityType, match)
		}
		*at = quota.Component{Match: match}
		if match == quota.Exact {
			at.Name = *c.Match
		}
	}
	if filter.IP != quota.Whatever && (filter.User != quota.Whatever || filter.ClientID != quota.Whatever) {
		return filter, deny(kerr.InvalidRequest, "the filter combines ip with user or client-id; no entity has both")
	}
	if name := quota.IPOf(filter.IP.Name); name != "" {
		filter.IP.Name = name
	}
	return filter, nil
}

// entityPart is a part of an entity as the protocol has it: without a name it is the default.
type entityPart struct {
	kind string
	name *string
}

// partsOf returns the parts that an entity has.
func partsOf(e quota.Entity) []entityPart {
	var parts []entityPart
	for _, p := range []struct {
		kind string
		quota.Part
	}{{entityUser, e.User}, {entityClientID, e.ClientID}, {entityIP, e.IP}} {
		switch {
		case p.Default:
			parts = append(parts, entityPart{p.kind, nil})
		case p.Name != "":
			parts = append(parts, entityPart{p.kind, &p.Name})
		}
	}
	return parts
}
