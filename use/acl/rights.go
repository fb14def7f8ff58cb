package acl

import (
	"context"
	"net"
	"strings"
)

// Rights are what one client may do: everything, or what rules allow. They do not change; Now
// returns those that hold later. nil allows nothing.
type Rights struct {
	everything bool
	rules      Rules

	principal, host string // of a user, whose rules are in the store; "": the client carries its rules
	set             *Set   // that the rules were taken from; nil: not yet read
}

// Unlimited are the rights of a client that may do everything.
var Unlimited = &Rights{everything: true}

// RightsBy returns the rights of a client that carries its rules, as an API key does.
func RightsBy(rules Rules) *Rights { return &Rights{rules: rules} }

// RightsOf returns the rights of a user whose client connects from an address (host:port). A super
// user may do everything; everybody else may do what the stored rules allow, and nothing until Now
// has read them.
func RightsOf(principal, address string, super bool) *Rights {
	if super {
		return Unlimited
	}
	return &Rights{principal: principal, host: HostAt(address)}
}

// Now returns the rights by the stored rules, which are at most freshFor old; these rights if they
// have not changed. For an error see ACLs.Current.
func (r *Rights) Now(ctx context.Context, acls *ACLs) (*Rights, error) {
	if r.principal == "" || acls == nil {
		return r, nil
	}
	set, err := acls.Current(ctx)
	if err != nil || set == r.set {
		return r, err
	}
	return &Rights{principal: r.principal, host: r.host, set: set, rules: set.Of(r.principal, r.host)}, nil
}

// Everything reports whether the client may do everything.
func (r *Rights) Everything() bool { return r != nil && r.everything }

// May reports whether the client may do something to a resource.
func (r *Rights) May(op Operation, kind Kind, name string) bool {
	return r != nil && (r.everything || r.rules.May(op, kind, name))
}

// MayAny reports whether the client may do something to some resource of a kind, whether or not it
// exists.
func (r *Rights) MayAny(op Operation, kind Kind) bool {
	return r != nil && (r.everything || r.rules.MayAny(op, kind))
}

// MayCreate reports whether the client may create a topic: this one, or any (AuthHelper in
// KafkaApis.handleCreateTopicsRequest).
func (r *Rights) MayCreate(topic string) bool {
	return r.May(Create, Cluster, ClusterName) || r.May(Create, Topic, topic)
}

// HostAt returns the host of an address, host:port, as rules have it.
func HostAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	host, _, _ = strings.Cut(host, "%") // the zone
	return HostOf(host)
}
