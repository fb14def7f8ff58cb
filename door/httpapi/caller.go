package httpapi

import (
	"cmp"
	"context"
	"errors"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/audit"
	"github.com/weir-log/weir/use/queue"
	"github.com/weir-log/weir/use/stream"
)

// caller is who makes a request: an API key, a user, or everybody while nobody need show who they
// are. It does not change; Server.now returns the one for later.
type caller struct {
	key    apikey.Identity             // the API key, or apikey.Everybody
	user   string                      // the principal of a user, such as User:billing
	rights *acl.Rights                 // of a user
	still  func(context.Context) error // returns an error once its credentials are no longer valid; nil: they stay valid
}

// stranger is a caller that is not known. It may do nothing.
var stranger = &caller{}

// ID tells callers apart, for what they may hold: a key's id, or a principal; "" for everybody.
func (w *caller) ID() string {
	if w.user != "" {
		return w.user
	}
	return w.key.ID()
}

// audited returns who the client is, for the audit.
func (c *call) audited() audit.Who {
	who := audit.Who{Type: audit.Key, Name: c.who.key.Name(), ID: c.who.key.ID(), Door: "http", Address: c.r.RemoteAddr}
	switch {
	case c.who.user != "":
		who.Type, who.Name = audit.User, strings.TrimPrefix(c.who.user, "User:")
	case who.ID == "":
		who.Type = audit.Anonymous
	}
	if c.r.Context().Value(insideKey{}) != nil {
		who.Door = "console"
	}
	return who
}

func (w *caller) String() string {
	if w.user != "" {
		return "user " + shorten(w.user)
	}
	return "key " + w.key.String()
}

// need is what a request needs of its caller: of an API key an access, and of a user operations
// with Kafka's meaning. What the request is about is in its path, or in its body: topics, of which
// some are categories of streams; a group; the groups of a projection; or a queue. A queue has no
// rules of its own: a user needs the operations on the topic with the queue's messages, and those
// on the group with the queue's name.
type need struct {
	access access
	topic  []acl.Operation // on the topic: all of them; none: no user may
	group  []acl.Operation // on the group: all of them; none: no user may, except that a queue then needs only those on its topic
	either bool            // one of topic is enough for the route; its handler knows which

	// On the cluster: all of them. If there are some, nothing else counts, and an API key must be
	// an administrator's.
	cluster []acl.Operation
}

// The needs, which docs/http.md lists by route. If the path has a topic or a category, the
// operations on the group do not matter.
var (
	toAll = need{} // for every client, whoever it is

	//                           an API key, a user: topic                              group
	toDescribe     = need{access: mayRead, topic: ops(acl.Describe), group: ops(acl.Describe)}
	toRead         = need{access: mayRead, topic: ops(acl.Read), group: ops(acl.Read)}
	toWrite        = need{access: mayWrite, topic: ops(acl.Write)}
	toCreate       = need{access: mayAdmin, topic: ops(acl.Create)}
	toChange       = need{access: mayAdmin, topic: ops(acl.Alter, acl.AlterConfigs), either: true}
	toAlter        = need{access: mayAdmin, topic: ops(acl.Alter)}
	toMakeQueue    = need{access: mayAdmin, topic: ops(acl.Create), group: ops(acl.AlterConfigs)} // if the topic exists: READ and WRITE
	toAlterConfigs = need{access: mayAdmin, topic: ops(acl.AlterConfigs), group: ops(acl.AlterConfigs)}
	toDelete       = need{access: mayAdmin, topic: ops(acl.Delete), group: ops(acl.Delete)}
	toDeleteGroup  = need{access: mayAdmin, group: ops(acl.Delete)}
	toAlterGroup   = need{access: mayAdmin, group: ops(acl.AlterConfigs)}
	toSchedule     = need{access: mayAdmin, topic: ops(acl.AlterConfigs, acl.Write), group: ops(acl.AlterConfigs)}
	toRedrive      = need{access: mayAdmin, topic: ops(acl.Read, acl.Write), group: ops(acl.Read)}
	toReset        = need{access: mayAdmin, topic: ops(acl.Read), group: ops(acl.Read)} // as Kafka's OffsetCommit

	// Whoever may create keys and rules can give itself all rights that these can give: so it must
	// have them. ALTER on the cluster is what Kafka asks of who changes users and ACLs.
	toAdminister = need{access: mayAdmin, cluster: ops(acl.Alter)}
)

func ops(all ...acl.Operation) []acl.Operation { return all }

// mayTopic reports whether the caller may do this to a topic.
func (w *caller) mayTopic(n need, topic string) bool {
	if w.user == "" {
		return w.key.May(n.access, topic)
	}
	for _, op := range n.topic {
		may := w.rights.May(op, acl.Topic, topic)
		if op == acl.Create {
			may = w.rights.MayCreate(topic)
		}
		if may == n.either {
			return may
		}
	}
	return !n.either && n.topic != nil
}

// mayGroup reports whether the caller may do this to a consumer group. mayTopic decides about the
// topics that the group reads.
func (w *caller) mayGroup(n need, group string) bool {
	if w.user == "" {
		return w.key.MayGroup(n.access, group)
	}
	for _, op := range n.group {
		if !w.rights.May(op, acl.Group, group) {
			return false
		}
	}
	return n.group != nil
}

// mayQueue reports whether the caller may do this to a queue whose messages are in a topic.
func (w *caller) mayQueue(n need, queue, topic string) bool {
	if w.user == "" {
		return w.key.MayQueue(n.access, queue)
	}
	return (n.group == nil || w.mayGroup(n, queue)) && w.mayTopic(n, topic)
}

// mayMakeQueue reports whether the caller may create a queue; Server.mayTakeTopics decides about
// its topics.
func (w *caller) mayMakeQueue(queue string) bool {
	if w.user == "" {
		return w.key.MayQueue(toMakeQueue.access, queue)
	}
	return w.mayGroup(toMakeQueue, queue)
}

// mayConfigs reports whether the caller may see a topic's settings.
func (w *caller) mayConfigs(topic string) bool {
	if w.user == "" {
		return true // an API key that may read a topic may see its settings
	}
	return w.rights.May(acl.DescribeConfigs, acl.Topic, topic)
}

// mayOperate reports whether the caller may see what is about the whole program.
func (w *caller) mayOperate() bool {
	if w.user == "" {
		return w.key.May(mayAdmin, "")
	}
	return w.rights.May(acl.Alter, acl.Cluster, acl.ClusterName)
}

// mayMeasure reports whether the caller may read the metrics of this process.
func (w *caller) mayMeasure() bool { return w.key.MayMetrics() || w.mayOperate() }

// mayAdminister reports whether the caller may do what needs rights on the cluster.
func (w *caller) mayAdminister(n need) bool {
	if w.user == "" {
		return w.key.Administers()
	}
	for _, op := range n.cluster {
		if !w.rights.May(op, acl.Cluster, acl.ClusterName) {
			return false
		}
	}
	return true
}

// groupPrefixes returns prefixes of all groups that the caller may see; "" for all.
func (w *caller) groupPrefixes() []string {
	if w.user == "" {
		return w.key.GroupPrefixes()
	}
	return []string{""} // each is judged by itself
}

// queuePrefixes returns prefixes of all queues that the caller may see; "" for all.
func (w *caller) queuePrefixes() []string {
	if w.user == "" {
		return w.key.QueuePrefixes()
	}
	return []string{""} // each is judged by itself
}

// seesGroup reports whether a list of groups shows one to the caller. As in Kafka, whoever may
// describe the cluster sees all (KafkaApis.handleListGroupsRequest).
func (w *caller) seesGroup(group string) bool {
	return w.mayGroup(toDescribe, group) || w.user != "" && w.rights.May(acl.Describe, acl.Cluster, acl.ClusterName)
}

// forbidden refuses what the caller may not do to a resource. What it says does not depend on
// whether the resource exists.
func (w *caller) forbidden(n need, kind, name string) error {
	if w.user != "" {
		return kindForbidden.because("the %s needs %s for %s %s; `weir acl list` shows what users may do", w, n.ofUser(kind), kind, shorten(name))
	}
	if name == "" {
		return kindForbidden.because("the %s does not give %s access, which this request needs; `weir key list` shows what it gives", w, n.access)
	}
	return kindForbidden.because("the %s does not give %s access to %s %s; `weir key list` shows which %ss it can access", w, n.access, kind, shorten(name), kind)
}

// ofUser says in words which operations a user needs, such as "READ on its topic and READ on the
// group of its name".
func (n need) ofUser(kind string) string {
	list := func(all []acl.Operation, between string) string {
		var words []string
		for _, op := range all {
			words = append(words, op.String())
		}
		return strings.Join(words, between)
	}
	and := " and "
	if n.either {
		and = " or "
	}
	switch {
	case kind == "topic":
		return list(n.topic, and)
	case kind != "queue":
		return list(n.group, " and ")
	case n.group == nil:
		return list(n.topic, and) + " on its topic,"
	}
	return list(n.topic, and) + " on its topic and " + list(n.group, " and ") + " on the group of its name,"
}

// mayPath returns nil if the caller may do to what the path names what a route does. If the path
// names nothing, an API key must have the access to anything at all, and the handler checks each
// topic or queue that it touches.
func (s *Server) mayPath(c *call) error {
	n, topic := c.needs, cmp.Or(c.r.PathValue("topic"), c.r.PathValue("category"))
	group, queue, projection := c.r.PathValue("group"), c.r.PathValue("queue"), c.r.PathValue("projection")
	switch {
	case n.cluster != nil && !c.who.mayAdminister(n):
		return kindForbidden.because("the %s may not do this: it needs a key with admin access to all topics, groups and queues, "+
			"or a user with ALTER on the cluster", c.who)
	case n.cluster != nil:
		return nil
	case topic != "":
		return c.may(n, topic)
	case group != "" && !c.who.mayGroup(n, group):
		return c.who.forbidden(n, "group", group)
	case queue != "":
		return s.mayQueue(c.r.Context(), c.who, n, queue)
	case projection != "" && !c.who.mayGroup(n, stream.GroupsOf(projection)):
		if c.who.user != "" {
			return c.who.forbidden(n, "projection", projection)
		}
		return kindForbidden.because("the %s does not give %s access to projection %s, because it gives none to its groups, %s…; `weir key list` shows its groups", c.who, n.access, shorten(projection), shorten(stream.GroupsOf(projection)))
	case c.who.user == "" && !c.who.key.Has(n.access):
		return c.who.forbidden(n, "", "")
	}
	return nil
}

// may returns nil if the caller may do this to a topic.
func (c *call) may(n need, topic string) error {
	if c.who.mayTopic(n, topic) {
		return nil
	}
	return c.who.forbidden(n, "topic", topic)
}

// mayQueue returns nil if a caller may do this to a queue. For a user it finds out which topic has
// the queue's messages: a store call if this process has not opened the queue yet.
func (s *Server) mayQueue(ctx context.Context, who *caller, n need, name string) error {
	topic := name
	if who.user != "" && !who.rights.Everything() {
		if n.group != nil && !who.mayGroup(n, name) {
			return who.forbidden(n, "queue", name)
		}
		q, err := s.cfg.Queues.Open(ctx, name)
		var invalid *eventlog.InvalidError
		switch {
		case err == nil:
			topic = q.Info().Topic
		case !errors.Is(err, queue.ErrUnknownQueue) && !errors.As(err, &invalid):
			return err
		}
	}
	if !who.mayQueue(n, name, topic) {
		return who.forbidden(n, "queue", name)
	}
	return nil
}
