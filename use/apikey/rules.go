package apikey

import (
	"cmp"
	"context"
	"slices"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// granted is what an access allows, by kind of resource. Admin allows everything.
var granted = map[Access]map[acl.Kind][]acl.Operation{
	Read:  {acl.Topic: {acl.Read, acl.DescribeConfigs}, acl.Group: {acl.Read, acl.DescribeConfigs}},
	Write: {acl.Topic: {acl.Write}},
	Admin: {acl.Topic: {acl.All}, acl.Group: {acl.All}},
}

// grantedAll is what an access allows beyond that, to keys for all topics and all groups: what
// belongs to no single topic or group. Who may do what, and how much, is for administrators.
var grantedAll = map[Access][]acl.Operation{
	Read:  {acl.Describe, acl.DescribeConfigs},
	Admin: {acl.Create, acl.Describe, acl.ClusterAction, acl.DescribeConfigs, acl.IdempotentWrite},
}

// grantedAdministrator is what an administrator's key may do to the cluster: also ALTER, with which
// it can give any right to any user, and ALTER_CONFIGS, with which it changes quotas.
var grantedAdministrator = []acl.Operation{acl.All}

// Rules returns what the key allows, as rules: the same rights, for doors that ask for one
// operation at a time. Queues and streams have no rules.
func (id Identity) Rules() acl.Rules { return id.key.Rules() }

// Rules returns what the key allows while it is valid, as Identity.Rules does.
func (k Key) Rules() acl.Rules {
	var rules acl.Rules
	add := func(kind acl.Kind, of scope, ops []acl.Operation) {
		for _, op := range ops {
			if of.all {
				rules = append(rules, acl.Rule{Kind: kind, Name: acl.Everything, Operation: op})
				continue
			}
			for _, prefix := range of.prefixes {
				if prefix != "" { // an empty one reaches nothing
					rules = append(rules, acl.Rule{Kind: kind, Name: prefix, Prefixed: true, Operation: op})
				}
			}
			for _, name := range of.names {
				if name != "" && name != acl.Everything { // Create refuses both
					rules = append(rules, acl.Rule{Kind: kind, Name: name, Operation: op})
				}
			}
		}
	}
	for _, access := range slices.Compact(slices.Sorted(slices.Values(k.Access))) {
		add(acl.Topic, k.topics(), granted[access][acl.Topic])
		add(acl.Group, k.groups(), granted[access][acl.Group])
		switch {
		case access == Admin && (Identity{k}).Administers():
			add(acl.Cluster, scope{all: true}, grantedAdministrator)
		case k.AllTopics && k.AllGroups:
			add(acl.Cluster, scope{all: true}, grantedAll[access])
		}
	}
	if k.topics().has(eventlog.AuditTopic) && !k.audits() {
		rules = append(rules, acl.Rule{Kind: acl.Topic, Name: eventlog.AuditTopic, Operation: acl.All, Deny: true})
	}
	return rules
}

// Owned is a rule that a key has.
type Owned struct {
	acl.Binding
	Key string // its id
}

// Rules returns the rules of valid keys that one of the filters finds, in order. A key's principal
// is that of its name, with which its owner logs in over Kafka.
func (k *Keys) Rules(ctx context.Context, filters ...acl.Filter) ([]Owned, error) {
	list, err := k.List(ctx)
	if err != nil {
		return nil, err
	}
	var found []Owned
	for _, key := range list {
		if key.Err != nil {
			continue
		}
		for _, r := range key.Rules() {
			b := acl.Binding{Principal: "User:" + key.Name, Host: acl.Everywhere, Rule: r}
			if r.Kind == acl.Cluster {
				b.Name = acl.ClusterName
			}
			if slices.ContainsFunc(filters, func(f acl.Filter) bool { return f.Finds(b) }) {
				found = append(found, Owned{b, key.ID})
			}
		}
	}
	slices.SortFunc(found, func(a, b Owned) int { return cmp.Or(a.Compare(b.Binding), cmp.Compare(a.Key, b.Key)) })
	return found, nil
}
