package kafka

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/audit"
)

// caller is who uses a connection. It does not change: a client that logs in again, or whose rights
// have changed, gets another caller.
type caller struct {
	principal string      // as Kafka writes it, such as User:billing
	key       string      // the id of its API key; "" if it has none
	mechanism string      // the mechanism with which it logged in; "" if it did not
	rights    *acl.Rights // what it may do; the function admit renews them
	until     time.Time   // it must log in again before then (KIP-368); zero: it need not
	expires   time.Time   // when its credentials say that they expire; zero: they do not

	told time.Duration // how long its login lasts, as it was told; 0: it was told no limit

	still func(context.Context) error // returns an error once its credentials are no longer valid; nil: they stay valid
}

// anybody is the caller at a listener that does not ask who a client is.
var anybody = &caller{principal: "User:ANONYMOUS", rights: acl.Unlimited}

// id tells callers apart as HTTP does, for what counts for them in the store: the id of an API key,
// or a principal; "" for anybody.
func (w *caller) id() string {
	switch {
	case w == anybody:
		return ""
	case w.key != "":
		return w.key
	}
	return w.principal
}

// audited returns who the client is, for the audit.
func (c *conn) audited() audit.Who {
	w := c.who.Load()
	if w == nil { // it has not logged in, and may change nothing
		w = anybody
	}
	who := audit.Who{Type: audit.User, Name: strings.TrimPrefix(w.principal, "User:"), ID: w.key, Door: "kafka", Address: c.nc.RemoteAddr().String()}
	switch {
	case w == anybody:
		who.Type, who.Name = audit.Anonymous, ""
	case w.key != "":
		who.Type = audit.Key
	}
	return who
}

// renewed returns the caller with the rights that it has now.
func (w *caller) renewed(ctx context.Context, acls *acl.ACLs) (*caller, error) {
	rights, err := w.rights.Now(ctx, acls)
	if err != nil || rights == w.rights {
		return w, err
	}
	next := *w
	next.rights = rights
	return &next, nil
}

// rights returns what the client may do.
func (r *request) rights() *acl.Rights { return r.conn.who.Load().rights }

// may reports whether the client may do something to a resource.
func (r *request) may(op acl.Operation, kind acl.Kind, name string) bool {
	return r.rights().May(op, kind, name)
}

// permit returns nil if the client may do something to a resource; otherwise the error with Kafka's
// code. It does not depend on whether the resource exists, because a client is not told of what it
// may not see.
func (r *request) permit(op acl.Operation, kind acl.Kind, name string) error {
	if r.may(op, kind, name) {
		return nil
	}
	return forbidden[kind][op]
}

// permitCluster is permit for what belongs to no single topic or group.
func (r *request) permitCluster(op acl.Operation) error {
	return r.permit(op, acl.Cluster, acl.ClusterName)
}

// permitAccess is permitCluster for what says who may do what, and how much. A user needs what it
// needs in Kafka. An API key must be an administrator's, as over HTTP.
func (r *request) permitAccess(op acl.Operation) error {
	if r.conn.who.Load().key != "" {
		op = acl.Alter
	}
	return r.permitCluster(op)
}

// forbidden has an error for each operation on each kind of resource. They are made once, because a
// request may be refused many times.
var forbidden = func() map[acl.Kind]map[acl.Operation]error {
	codes := map[acl.Kind]*kerr.Error{
		acl.Topic: kerr.TopicAuthorizationFailed, acl.Group: kerr.GroupAuthorizationFailed, acl.Cluster: kerr.ClusterAuthorizationFailed,
	}
	all := make(map[acl.Kind]map[acl.Operation]error)
	for kind, code := range codes {
		all[kind] = make(map[acl.Operation]error)
		for op := acl.All; op <= acl.IdempotentWrite; op++ {
			all[kind][op] = deny(code, "the client may not do this: it needs %s access to the %s", op, kind)
		}
	}
	return all
}()

// operations returns which of a set of operations the client may do, for the answers that list
// them.
func (r *request) operations(set int32, kind acl.Kind, name string) int32 {
	rights := r.rights()
	if rights.Everything() {
		return set
	}
	allowed := int32(0)
	for op := acl.Read; op <= acl.IdempotentWrite; op++ {
		if bit := int32(1) << op; set&bit != 0 && rights.May(op, kind, name) {
			allowed |= bit
		}
	}
	return allowed
}

// clusterOperations returns what the client may do to the cluster; nothing if it may not describe
// it (KafkaApis.clusterAuthorizedOperations).
func (r *request) clusterOperations() int32 {
	if !r.may(acl.Describe, acl.Cluster, acl.ClusterName) {
		return 0
	}
	return r.operations(clusterOperations, acl.Cluster, acl.ClusterName)
}

// permitCreate returns nil if the client may create a topic.
func (r *request) permitCreate(topic string) error {
	if r.rights().MayCreate(topic) {
		return nil
	}
	return forbidden[acl.Topic][acl.Create]
}

// topicsSeen returns the topics that the client may describe.
func (s *Server) topicsSeen(r *request) []eventlog.Topic {
	all, rights := s.log.Topics(), r.rights()
	if rights.Everything() {
		return all
	}
	var seen []eventlog.Topic
	for _, t := range all {
		if rights.May(acl.Describe, acl.Topic, t.Name) {
			seen = append(seen, t)
		}
	}
	return seen
}

// permitIdempotent returns nil if the client may get a producer id: it may write to some topic, or
// has the right by name (KIP-679).
func (r *request) permitIdempotent() error {
	if r.rights().MayAny(acl.Write, acl.Topic) {
		return nil
	}
	return r.permitCluster(acl.IdempotentWrite)
}

// permitConfigs returns nil if the client may read or change the settings of a resource. What is no
// topic and no group belongs to the cluster.
func (r *request) permitConfigs(op acl.Operation, kind kmsg.ConfigResourceType, name string) error {
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		return r.permit(op, acl.Topic, name)
	case kmsg.ConfigResourceTypeGroupConfig:
		return r.permit(op, acl.Group, name)
	}
	return r.permitCluster(op)
}
