// Package acl says what a client may do: rules that allow or forbid operations on resources, with
// the meaning that they have in Apache Kafka.
//
// An API key carries rules of its own (apikey.Identity.Rules). Those of users are in the store
// (ACLs). A door asks for one operation on one resource at a time, and does not know where the
// rules come from.
//
// acl.go judges, rights.go is what a door asks about one client, binding.go says whom a stored rule
// is about and which rules a filter finds, stored.go creates and deletes stored rules, follow.go is
// what a server knows of them.
package acl

import "strings"

// Operation is something that is done to a resource. The numbers are those of Kafka's AclOperation.
type Operation int8

// All stands in a rule for every operation; nobody asks for it.
const (
	All             Operation = 2
	Read            Operation = 3
	Write           Operation = 4
	Create          Operation = 5
	Delete          Operation = 6
	Alter           Operation = 7
	Describe        Operation = 8
	ClusterAction   Operation = 9
	DescribeConfigs Operation = 10
	AlterConfigs    Operation = 11
	IdempotentWrite Operation = 12
)

func (o Operation) String() string {
	names := [...]string{All: "ALL", Read: "READ", Write: "WRITE", Create: "CREATE", Delete: "DELETE", Alter: "ALTER", Describe: "DESCRIBE",
		ClusterAction: "CLUSTER_ACTION", DescribeConfigs: "DESCRIBE_CONFIGS", AlterConfigs: "ALTER_CONFIGS", IdempotentWrite: "IDEMPOTENT_WRITE"}
	if o < 0 || int(o) >= len(names) || names[o] == "" {
		return "UNKNOWN"
	}
	return names[o]
}

// ParseOperation finds an operation by its name: describe_configs, DESCRIBE_CONFIGS or
// describe-configs.
func ParseOperation(name string) (Operation, bool) {
	for op := All; op <= IdempotentWrite; op++ {
		if op.String() == strings.ToUpper(strings.ReplaceAll(name, "-", "_")) {
			return op, true
		}
	}
	return 0, false
}

// Kind is a kind of resource. The numbers are those of Kafka's ResourceType.
type Kind int8

// There is one cluster; its name is ClusterName.
const (
	Topic   Kind = 2
	Group   Kind = 3
	Cluster Kind = 4

	TransactionalID Kind = 5 // rules about it are stored; nobody asks yet
)

// ClusterName is the name of the only resource of the kind Cluster, as in Kafka.
const ClusterName = "kafka-cluster"

func (k Kind) String() string {
	switch k {
	case Topic:
		return "topic"
	case Group:
		return "group"
	case Cluster:
		return "cluster"
	case TransactionalID:
		return "transactional-id"
	}
	return "unknown"
}

// ParseKind finds a kind by its name.
func ParseKind(name string) (Kind, bool) {
	for kind := Topic; kind <= TransactionalID; kind++ {
		if kind.String() == name {
			return kind, true
		}
	}
	return 0, false
}

// Everything, as the name in a rule that is not Prefixed, stands for all resources of the kind.
const Everything = "*"

// Rule allows or forbids an operation on resources.
type Rule struct {
	Kind      Kind
	Name      string // of one resource, or Everything; if Prefixed, the beginning of their names
	Prefixed  bool
	Operation Operation
	Deny      bool
}

// covers reports whether a rule is about a resource.
func (r Rule) covers(kind Kind, name string) bool {
	switch {
	case r.Kind != kind:
		return false
	case r.Prefixed:
		return strings.HasPrefix(name, r.Name)
	}
	return r.Name == name || r.Name == Everything
}

// Rules are all rules about one client. The zero value allows nothing.
type Rules []Rule

// May reports whether the rules allow an operation on a resource: a rule allows it, and none
// forbids it. As in Kafka, whoever may read, write, delete or alter a resource may also describe
// it, and whoever may alter its settings may also describe these (StandardAuthorizerData,
// IMPLIES_DESCRIBE).
func (rules Rules) May(op Operation, kind Kind, name string) bool {
	allowed := false
	for _, r := range rules {
		switch {
		case !r.covers(kind, name):
		case r.Deny && (r.Operation == All || r.Operation == op):
			return false
		case !r.Deny && implies(r.Operation, op):
			allowed = true
		}
	}
	return allowed
}

// MayAny reports whether the rules allow an operation on some resource of a kind, whether or not it
// exists.
func (rules Rules) MayAny(op Operation, kind Kind) bool {
	for _, r := range rules {
		if r.Kind == kind && !r.Deny && implies(r.Operation, op) && !rules.forbids(op, r) {
			return true
		}
	}
	return false
}

// forbids reports whether a rule forbids all that another rule allows.
func (rules Rules) forbids(op Operation, allowing Rule) bool {
	for _, r := range rules {
		if !r.Deny || r.Kind != allowing.Kind || r.Operation != All && r.Operation != op {
			continue
		}
		if !r.Prefixed && (r.Name == Everything || r.Name == allowing.Name && !allowing.Prefixed) {
			return true
		}
		if r.Prefixed && strings.HasPrefix(allowing.Name, r.Name) && (allowing.Prefixed || allowing.Name != Everything) {
			return true
		}
	}
	return false
}

// implies reports whether a rule that allows one operation allows another.
func implies(given, asked Operation) bool {
	switch {
	case given == All || given == asked:
		return true
	case asked == Describe:
		return given == Read || given == Write || given == Delete || given == Alter
	case asked == DescribeConfigs:
		return given == AlterConfigs
	}
	return false
}
