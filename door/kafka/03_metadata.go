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

// metadata describes the cluster and topics, and creates unknown topics if the client and
// Config.NoAutoCreate allow it.
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
	mentions := make(map[string]bool) // as in Kafka, a topic that is mentioned more than once has one answer
	for _, asked := range in.Topics {
		if !first(mentions, nameOrID(asked.Topic, asked.TopicID)) {
			continue
		}
		topic, err := s.metadataFind(ctx, r, asked, mayCreate)
		if err == nil {
			if err := r.claimAnswer(ctx, len(topic.Partitions)*(metadataCost+replicaCost*len(view.Brokers()))); err != nil {
				return nil
			}
			out.Topics = append(out.Topics, s.metadataTopic(r, in, view, topic))
			continue
		}
		s.trouble("Metadata", err)
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.TopicID, t.ErrorCode = asked.Topic, asked.TopicID, errorCode(err)
		if asked.TopicID != noTopicID {
			t.Topic = nil
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// metadataCost estimates the bytes of a partition in an answer, in memory and encoded, and
// replicaCost those of each replica.
const (
	metadataCost = 256
	replicaCost  = 16
)

// metadataFind finds or creates the requested topic. An id takes precedence over a name: Kafka's
// own client sends an empty name with it (KafkaApis.handleTopicMetadataRequest checks ids first as
// well).
func (s *Server) metadataFind(ctx context.Context, r *request, asked kmsg.MetadataRequestTopic, mayCreate bool) (eventlog.Topic, error) {
	if asked.TopicID != noTopicID {
		return s.topicByID(r, acl.Describe, asked.TopicID)
	}
	if asked.Topic == nil {
		return eventlog.Topic{}, deny(kerr.UnknownTopicID, "a topic in this request has neither a name nor an id")
	}
	if err := r.permit(acl.Describe, acl.Topic, *asked.Topic); err != nil {
		return eventlog.Topic{}, err
	}
	topic, err := s.lookUp(ctx, *asked.Topic)
	if !mayCreate || !errors.Is(err, eventlog.ErrUnknownTopic) {
		return topic, err
	}
	if err := r.permitCreate(*asked.Topic); err != nil {
		return topic, err
	}
	topic, err = s.createTopic(ctx, r, eventlog.TopicSpec{Name: *asked.Topic, Partitions: s.cfg.Partitions})
	if errorCode(err) == kerr.TopicAlreadyExists.Code { // another client's request was first
		return s.log.Topic(ctx, *asked.Topic)
	}
	return topic, err
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
