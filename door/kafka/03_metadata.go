package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
	"github.com/weir-log/weir/use/broker"
)

// metadata describes the cluster and topics, and creates unknown topics, unless the client,
// Config.NoAutoCreate or a log that is read-only forbids it.
func (s *Server) metadata(ctx context.Context, r *request, in *kmsg.MetadataRequest) *kmsg.MetadataResponse {
	out := in.ResponseKind().(*kmsg.MetadataResponse)
	view := s.view()
	for _, known := range view.Brokers() {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Rack = known.ID, rackOf(known)
		b.Host, b.Port = s.addressOf(r, view, known)
		out.Brokers = append(out.Brokers, b)
	}
	out.ClusterID, out.ControllerID = &s.clusterID, view.Brokers()[0].ID
	if in.IncludeClusterAuthorizedOperations {
		out.AuthorizedOperations = r.clusterOperations()
	}

	if in.Topics == nil || in.Version == 0 && len(in.Topics) == 0 {
		topics, partitions := s.topicsSeen(r), 0
		for _, t := range topics {
			partitions += len(t.Partitions)
		}
		if err := r.claimAnswer(ctx, partitions*(metadataCost+replicaCost*len(view.Brokers()))); err != nil {
			return nil
		}
		for _, t := range topics {
			out.Topics = append(out.Topics, s.metadataTopic(r, in, view, t))
		}
		return out
	}
	mayCreate := !s.cfg.NoAutoCreate && !s.log.ReadOnly() && (in.AllowAutoTopicCreation || in.Version < 4)
	for _, m := range s.metadataFind(ctx, r, in.Topics, mayCreate) {
		if m.err == nil {
			if err := r.claimAnswer(ctx, len(m.topic.Partitions)*(metadataCost+replicaCost*len(view.Brokers()))); err != nil {
				return nil
			}
			out.Topics = append(out.Topics, s.metadataTopic(r, in, view, m.topic))
			continue
		}
		s.trouble("Metadata", m.err)
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode = m.Topic, m.TopicID, errorCode(m.err)
		if m.TopicID != noTopicID {
			t.Topic = nil
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// mentioned is a topic of a request, and what was found.
type mentioned struct {
	kmsg.MetadataRequestTopic
	topic eventlog.Topic
	err   error
}

// metadataCost estimates the bytes of a partition in an answer, in memory and encoded, and
// replicaCost those of each replica.
const (
	metadataCost = 256
	replicaCost  = 16
)

// metadataFind finds the requested topics, and creates those that are unknown, if mayCreate: a few
// store calls for hundreds of topics. As in Kafka, a topic that is mentioned more than once has one
// answer.
func (s *Server) metadataFind(ctx context.Context, r *request, all []kmsg.MetadataRequestTopic, mayCreate bool) (found []*mentioned) {
	mentions := make(map[string]bool)
	var creating newTopics
	var of, late []*mentioned // of: the mentions of the topics in creating. late: the mentions of topics that another client's request creates first
	isLate := func(err error) bool { return err != nil && errorCode(err) == kerr.TopicAlreadyExists.Code }
	for _, asked := range all {
		if !first(mentions, nameOrID(asked.Topic, asked.TopicID)) {
			continue
		}
		m := &mentioned{MetadataRequestTopic: asked}
		m.topic, m.err = s.metadataTopicOf(ctx, r, asked)
		if found = append(found, m); !mayCreate || asked.TopicID != noTopicID || !errors.Is(m.err, eventlog.ErrUnknownTopic) {
			continue
		}
		if m.err = r.permitCreate(*asked.Topic); m.err == nil {
			m.err = creating.add(ctx, r, eventlog.TopicSpec{Name: *asked.Topic, Partitions: s.cfg.Partitions})
		}
		switch {
		case m.err == nil:
			of = append(of, m)
		case isLate(m.err):
			late = append(late, m)
		}
	}
	topics, errs := s.log.CreateTopics(ctx, creating.specs...)
	for i, m := range of {
		if m.topic, m.err = topics[i], errs[i]; isLate(m.err) {
			late = append(late, m)
		}
	}
	if len(late) > 0 {
		err := s.log.RefreshTopics(ctx)
		for _, m := range late {
			if m.err = err; err == nil {
				m.topic, m.err = s.log.Topic(ctx, *m.Topic)
			}
		}
	}
	return found
}

// metadataTopicOf finds a topic. An id takes precedence over a name: Kafka's own client sends an
// empty name with it (KafkaApis.handleTopicMetadataRequest checks ids first as well).
func (s *Server) metadataTopicOf(ctx context.Context, r *request, asked kmsg.MetadataRequestTopic) (eventlog.Topic, error) {
	if asked.TopicID != noTopicID {
		return s.topicByID(r, acl.Describe, asked.TopicID)
	}
	if asked.Topic == nil {
		return eventlog.Topic{}, deny(kerr.UnknownTopicID, "a topic in this request has neither a name nor an id")
	}
	if err := r.permit(acl.Describe, acl.Topic, *asked.Topic); err != nil {
		return eventlog.Topic{}, err
	}
	return s.lookUp(ctx, *asked.Topic)
}

func (s *Server) metadataTopic(r *request, in *kmsg.MetadataRequest, view *broker.View, topic eventlog.Topic) kmsg.MetadataResponseTopic {
	t := kmsg.NewMetadataResponseTopic()
	t.Topic, t.TopicID, t.IsInternal = &topic.Name, topic.ID, eventlog.InternalTopic(topic.Name)
	if in.IncludeTopicAuthorizedOperations {
		t.AuthorizedOperations = r.operations(topicOperations, acl.Topic, topic.Name)
	}
	t.Partitions = make([]kmsg.MetadataResponseTopicPartition, len(topic.Partitions))
	for i := range t.Partitions {
		p := &t.Partitions[i]
		p.Default()
		p.Partition, p.Leader, p.LeaderEpoch = int32(i), view.Leader(topic.Partitions[i]), s.log.LeaderEpoch()
		p.Replicas = view.Replicas(topic.Partitions[i]) // brokers that clients read from; copies are the store's business
		p.ISR = p.Replicas
	}
	return t
}

// rackOf returns a broker's rack; nil if it has none.
func rackOf(b broker.Broker) *string {
	if b.Rack == "" {
		return nil
	}
	return &b.Rack
}
