package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// topicID is a topic's id in newer versions of requests.
type topicID = [16]byte

var noTopicID topicID

// topicByName finds a topic for Produce, Fetch and similar requests, if the client may do the
// operation. An invalid name is an unknown topic.
func (s *Server) topicByName(ctx context.Context, r *request, op acl.Operation, name string) (eventlog.Topic, error) {
	if err := r.permit(op, acl.Topic, name); err != nil {
		return eventlog.Topic{}, err
	}
	t, err := s.lookUp(ctx, name)
	return t, unknownIfInvalid(err)
}

// lookUp is Log.Topic, but a request with many unknown names costs only a few store calls.
func (s *Server) lookUp(ctx context.Context, name string) (eventlog.Topic, error) {
	if seen, counts := ctx.Value(lookupsKey{}).(*lookups); counts && !s.log.KnowsTopic(name) {
		if err := seen.next(ctx, s.log, name); err != nil {
			return eventlog.Topic{}, err
		}
	}
	return s.log.Topic(ctx, name)
}

// lookups counts the names of one request that this process does not know. For the first name the
// store is asked; at the second name all topics are read again, so that a request of 20,000 such
// names costs a few store calls and not 20,000.
type lookups struct {
	unknown int
	read    bool  // all topics were read again
	failed  error // why they could not be read
}

// refresh reads all topics again, once for a request.
func (n *lookups) refresh(ctx context.Context, log *eventlog.Log) error {
	if !n.read {
		n.read, n.failed = true, log.RefreshTopics(ctx)
	}
	return n.failed
}

type lookupsKey struct{}

// countLookups returns the context for one request, in which lookUp counts unknown names.
func countLookups(ctx context.Context) context.Context {
	return context.WithValue(ctx, lookupsKey{}, new(lookups))
}

// next returns nil if Log.Topic is to find the name. Otherwise it returns the error: the name is
// invalid, or is not among all topics, or these could not be read.
func (n *lookups) next(ctx context.Context, log *eventlog.Log, name string) error {
	if err := eventlog.CheckTopicName(name); err != nil {
		return err
	}
	if n.unknown++; n.unknown == 1 {
		return nil
	}
	if err := n.refresh(ctx, log); err != nil || log.KnowsTopic(name) {
		return err
	}
	return fmt.Errorf("%w: %q", eventlog.ErrUnknownTopic, name)
}

// permitName returns nil if the client may do the operation to a topic of this name, and the name
// is valid.
func (r *request) permitName(op acl.Operation, name string) error {
	if err := r.permit(op, acl.Topic, name); err != nil {
		return err
	}
	return unknownIfInvalid(eventlog.CheckTopicName(name))
}

func unknownIfInvalid(err error) error {
	var invalid *eventlog.InvalidError
	if errors.As(err, &invalid) {
		return deny(kerr.UnknownTopicOrPartition, "%v", invalid)
	}
	return err
}

// topicByID finds a topic by its id, if the client may do the operation. To a client that may not
// even describe it, the id is unknown: an error of its own would tell that the topic exists.
func (s *Server) topicByID(r *request, op acl.Operation, id topicID) (eventlog.Topic, error) {
	t, err := s.log.TopicByID(id)
	if errors.Is(err, eventlog.ErrUnknownTopic) || err == nil && !r.may(acl.Describe, acl.Topic, t.Name) {
		return eventlog.Topic{}, unknownID(id)
	}
	if err == nil {
		err = r.permit(op, acl.Topic, t.Name)
	}
	return t, err
}

func unknownID(id topicID) error {
	return deny(kerr.UnknownTopicID, "no topic has the id %v", eventlog.TopicID(id))
}

// topicEither finds a topic by its id if byID is set (newer versions of requests have ids),
// otherwise by name. Either way it finds a topic that this process has not heard of yet.
func (s *Server) topicEither(ctx context.Context, r *request, op acl.Operation, name string, id topicID, byID bool) (eventlog.Topic, error) {
	if !byID {
		return s.topicByName(ctx, r, op, name)
	}
	if _, err := s.log.TopicByID(id); errors.Is(err, eventlog.ErrUnknownTopic) {
		// Another broker may have created it a moment ago, and told the client its id.
		if seen, counts := ctx.Value(lookupsKey{}).(*lookups); counts {
			if err := seen.refresh(ctx, s.log); err != nil {
				return eventlog.Topic{}, err // nobody knows whether there is one
			}
		}
	}
	return s.topicByID(r, op, id)
}

// partitionOf finds a topic's partition by number.
func partitionOf(t eventlog.Topic, number int32) (eventlog.Partition, error) {
	if number < 0 || int(number) >= len(t.Partitions) {
		return 0, deny(kerr.UnknownTopicOrPartition, "topic %q has no partition %[3]d; its partitions are 0 to %[2]d", t.Name, len(t.Partitions)-1, number)
	}
	return t.Partitions[number], nil
}

// checkEpoch compares the leader epoch that a client knows with the current one; a negative known
// means that the client sent none. A client with an older epoch refreshes its metadata and then
// asks with OffsetForLeaderEpoch whether what it read still exists (KIP-320).
func checkEpoch(known, now int32) error {
	switch {
	case known > now:
		return deny(kerr.UnknownLeaderEpoch, "the request has leader epoch %d, which is newer than the current one, %d", known, now)
	case known >= 0 && known < now:
		return deny(kerr.FencedLeaderEpoch, "the request has leader epoch %d, which is older than the current one, %d; refresh the metadata", known, now)
	}
	return nil
}

// checkNewTopic checks whether a topic may be created. The log's rules apply and, as in Kafka, one
// more: if '.' is replaced by '_', as in names of metrics, the topic's name must still differ from
// the names of all other topics.
func (s *Server) checkNewTopic(ctx context.Context, r *request, spec eventlog.TopicSpec) error {
	switch _, err := s.lookUp(ctx, spec.Name); {
	case err == nil:
		return deny(kerr.TopicAlreadyExists, "topic %q already exists", spec.Name)
	case !errors.Is(err, eventlog.ErrUnknownTopic):
		return err
	}
	if err := spec.Check(); err != nil {
		return err
	}
	if other, collides := s.metricNames.find(s.log.Topics(), spec.Name); collides {
		if !r.may(acl.Describe, acl.Topic, other) {
			return deny(kerr.InvalidTopicException, "the name %q collides with that of another topic: the names differ only in '.' and '_', which are the same character in the names of metrics; choose another name", spec.Name)
		}
		return nameCollides(spec.Name, other)
	}
	return nil
}

func nameCollides(name, other string) error {
	return deny(kerr.InvalidTopicException, "topic %q collides with topic %q: their names differ only in '.' and '_', which are the same character in the names of metrics; choose another name", name, other)
}

// metricNames finds topics by their names in metrics. It walks over the topics once after each
// change of the list of topics, not for each new name.
type metricNames struct {
	mu     sync.Mutex        // guards the fields below
	topics []eventlog.Topic  // the list that names was made from. It is the log's own: the log never changes a list, but replaces it
	names  map[string]string // the topics whose name has a '.' or '_', by their name in metrics
}

func (m *metricNames) find(topics []eventlog.Topic, name string) (topic string, is bool) {
	if !strings.ContainsAny(name, "._") || len(topics) == 0 {
		return "", false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.topics) != len(topics) || &m.topics[0] != &topics[0] {
		m.topics, m.names = topics, make(map[string]string)
		for _, t := range topics {
			if strings.ContainsAny(t.Name, "._") {
				m.names[metricName(t.Name)] = t.Name
			}
		}
	}
	topic, is = m.names[metricName(name)]
	return topic, is
}

func metricName(topic string) string { return strings.ReplaceAll(topic, ".", "_") }

// newTopics are the topics that a request creates: a few store calls for hundreds of them.
type newTopics struct {
	specs []eventlog.TopicSpec
	names map[string]string // the names of the topics in specs, by their name in metrics
}

// check is Server.checkNewTopic, and also checks that the name does not collide with those that
// were added.
func (n *newTopics) check(ctx context.Context, r *request, spec eventlog.TopicSpec) error {
	if other, collides := n.names[metricName(spec.Name)]; collides {
		return nameCollides(spec.Name, other)
	}
	return r.conn.s.checkNewTopic(ctx, r, spec)
}

// add adds a topic that check allows, and counts its partitions for the client's quota.
func (n *newTopics) add(ctx context.Context, r *request, spec eventlog.TopicSpec) error {
	if err := n.check(ctx, r, spec); err != nil {
		return err
	}
	if err := r.mutates(spec.Partitions); err != nil {
		return err
	}
	n.specs = append(n.specs, spec)
	n.note(spec.Name)
	return nil
}

// note notes the name of a topic that others must not collide with.
func (n *newTopics) note(name string) {
	if n.names == nil {
		n.names = make(map[string]string)
	}
	n.names[metricName(name)] = name
}

// names counts the names in a request that may name each only once.
type names map[string]int

func repeated[T any](all []T, name func(T) string) names {
	n := make(names, len(all))
	for _, t := range all {
		n[name(t)]++
	}
	return n
}

// refuse refuses a name that occurs more than once, because its mentions may differ. As in Kafka
// all mentions get one answer: the first mention gets the error, and for later mentions skip is
// true.
func (n names) refuse(name string) (skip bool, err error) {
	switch count := n[name]; count {
	case 0:
		return true, nil
	case 1:
		return false, nil
	default:
		n[name] = 0
		return false, deny(kerr.InvalidRequest, "%q is in this request %d times; name it once", name, count)
	}
}

// first reports whether this is a name's first mention in the request. In most requests repeated
// mentions get no answer of their own, so that an answer does not grow with them.
func first[T comparable](mentions map[T]bool, name T) bool {
	if mentions[name] {
		return false
	}
	mentions[name] = true
	return true
}

// asked is one topic of a request, with all its mentions.
type asked struct {
	first      int // index of the first mention
	partitions []int32
}

// merge joins the mentions of each topic, in the order of their first mentions. Each partition is
// listed once.
func merge[T any](mentions []T, of func(T) (topic string, partitions []int32)) (topics []asked) {
	type askedPartition struct {
		topic     int
		partition int32
	}
	at, seen := make(map[string]int), make(map[askedPartition]bool)
	for i, m := range mentions {
		name, partitions := of(m)
		n, again := at[name]
		if !again {
			n = len(topics)
			at[name], topics = n, append(topics, asked{first: i})
		}
		for _, p := range partitions {
			if first(seen, askedPartition{n, p}) {
				topics[n].partitions = append(topics[n].partitions, p)
			}
		}
	}
	return topics
}

// nameOrID identifies a topic of a request: by id, or by name if it has none.
func nameOrID(name *string, id topicID) string {
	if id != noTopicID || name == nil {
		return "id " + string(id[:])
	}
	return *name
}
