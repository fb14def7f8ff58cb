package apikey

import (
	"slices"

	"github.com/weir-log/weir/use/acl"
)

// granted is what an access allows, by kind of resource. Admin allows everything.
var granted = map[Access]map[acl.Kind][]acl.Operation{
	Read:  {acl.Topic: {acl.Read, acl.DescribeConfigs}, acl.Group: {acl.Read, acl.DescribeConfigs}},
	Write: {acl.Topic: {acl.Write}},
	Admin: {acl.Topic: {acl.All}, acl.Group: {acl.All}},
}

// grantedAll is what an access allows beyond that, to keys for all topics and all groups: what
// belongs to no single topic or group.
var grantedAll = map[Access][]acl.Operation{
	Read:  {acl.Describe, acl.DescribeConfigs},
	Admin: {acl.All},
}

// Rules returns what the key allows, as rules: the same rights, for doors that ask for one
// operation at a time. Queues and streams have no rules.
func (id Identity) Rules() acl.Rules { return id.key.Rules() }

// Rules returns what the key allows while it is valid, as Identity.Rules does.
func (k Key) Rules() acl.Rules {
	var rules acl.Rules
	add := func(kind acl.Kind, all bool, prefixes []string, ops []acl.Operation) {
		for _, op := range ops {
			if all {
				rules = append(rules, acl.Rule{Kind: kind, Name: acl.Everything, Operation: op})
				continue
			}
			for _, prefix := range prefixes {
				if prefix != "" { // an empty one reaches nothing
					rules = append(rules, acl.Rule{Kind: kind, Name: prefix, Prefixed: true, Operation: op})
				}
			}
		}
	}
	for _, access := range slices.Compact(slices.Sorted(slices.Values(k.Access))) {
		add(acl.Topic, k.AllTopics, k.Topics, granted[access][acl.Topic])
		add(acl.Group, k.AllGroups, k.Groups, granted[access][acl.Group])
		if k.AllTopics && k.AllGroups {
			add(acl.Cluster, true, nil, grantedAll[access])
		}
	}
	return rules
}
