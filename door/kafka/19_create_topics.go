package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// createTopics creates topics; each may fail independently.
func (s *Server) createTopics(ctx context.Context, request *request, in *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	out := in.ResponseKind().(*kmsg.CreateTopicsResponse)
	again := repeated(in.Topics, func(t kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	for _, asked := range in.Topics {
		skip, err := again.refuse(asked.Topic)
		if skip {
			continue
		}
		t := kmsg.NewCreateTopicsResponseTopic()
		t.Topic = asked.Topic
		var topic eventlog.Topic
		if err == nil {
			err = request.permitCreate(asked.Topic)
		}
		if err == nil {
			topic, err = s.createAsked(ctx, request, in, asked)
		}
		if t.ErrorCode, t.ErrorMessage = codeOf(err); err != nil {
			s.refused(request, err)
		} else {
			t.TopicID = topic.ID
			if err := request.permit(acl.DescribeConfigs, acl.Topic, topic.Name); err != nil { // then Kafka tells the client nothing more about the topic (KIP-525)
				t.NumPartitions, t.ReplicationFactor, t.ConfigErrorCode, t.Configs = -1, -1, errorCode(err), nil
				out.Topics = append(out.Topics, t)
				continue
			}
			t.NumPartitions, t.ReplicationFactor = int32(len(topic.Partitions)), 1
			configs := topicConfigs(topic)
			if err := request.claimAnswer(ctx, configsCost(configs, false, false)); err != nil {
				return nil
			}
			for _, c := range configs {
				r := kmsg.NewCreateTopicsResponseTopicConfig()
				r.Name, r.Value, r.Source = c.name, &c.value, int8(c.source)
				t.Configs = append(t.Configs, r)
			}
		}
		out.Topics = append(out.Topics, t)
	}
	return out
}

// createAsked creates one topic, or only validates the request.
func (s *Server) createAsked(ctx context.Context, request *request, in *kmsg.CreateTopicsRequest, asked kmsg.CreateTopicsRequestTopic) (eventlog.Topic, error) {
	partitions, err := s.partitionsAsked(asked)
	if err != nil {
		return eventlog.Topic{}, err
	}
	spec := eventlog.TopicSpec{Name: asked.Topic, Partitions: partitions, Config: make(map[string]string)}
	for _, c := range asked.Configs {
		if c.Value == nil {
			return eventlog.Topic{}, deny(kerr.InvalidConfig, "%s of topic %q is null; leave it out to use the default", c.Name, asked.Topic)
		}
		spec.Config[c.Name] = *c.Value
	}
	if err := request.checkAnswer(configsCost(topicConfigs(eventlog.Topic{Config: spec.Config}), false, false), len(in.Topics)); err != nil {
		return eventlog.Topic{}, err
	}
	if !in.ValidateOnly {
		return s.createTopic(ctx, request, spec)
	}
	if err := s.checkNewTopic(ctx, request, spec); err != nil {
		return eventlog.Topic{}, err
	}
	return eventlog.Topic{Name: spec.Name, Partitions: make([]eventlog.Partition, spec.Partitions), Config: spec.Config}, nil
}

// partitionsAsked returns the requested number of partitions. An assignment of replicas is accepted
// if it assigns all to this broker, the only one.
func (s *Server) partitionsAsked(asked kmsg.CreateTopicsRequestTopic) (int, error) {
	if len(asked.ReplicaAssignment) > 0 {
		if asked.NumPartitions != -1 || asked.ReplicationFactor != -1 {
			return 0, deny(kerr.InvalidRequest, "topic %q: if the request assigns replicas, the number of partitions and the replication factor must be -1", asked.Topic)
		}
		there := make(map[int32]bool)
		for _, a := range asked.ReplicaAssignment {
			if err := s.checkReplicas(a.Replicas); err != nil {
				return 0, err
			}
			if a.Partition < 0 || int(a.Partition) >= len(asked.ReplicaAssignment) || there[a.Partition] {
				return 0, deny(kerr.InvalidReplicaAssignment, "topic %q: the assignment of replicas must have each partition from 0 to %d exactly once; partition %d is outside this range or there twice", asked.Topic, len(asked.ReplicaAssignment)-1, a.Partition)
			}
			there[a.Partition] = true
		}
		return len(asked.ReplicaAssignment), nil
	}
	if err := s.checkReplicationFactor(asked); err != nil {
		return 0, err
	}
	if asked.NumPartitions == -1 {
		return s.cfg.Partitions, nil
	}
	return int(asked.NumPartitions), nil
}

func (s *Server) checkReplicationFactor(asked kmsg.CreateTopicsRequestTopic) error {
	switch factor := asked.ReplicationFactor; {
	case factor == -1 || factor == 1 || factor > 1 && s.cfg.AnyReplicationFactor:
		return nil
	case factor > 1:
		return lacking("replication factor", kerr.InvalidReplicationFactor, "replication factor %d of topic %q: the store keeps the records safe, not copies on several brokers; use 1 or -1, or start weir with --any-replication-factor", factor, asked.Topic)
	default:
		return deny(kerr.InvalidReplicationFactor, "replication factor %d of topic %q is not valid; use 1 or -1", factor, asked.Topic)
	}
}

// checkReplicas accepts a partition's replicas when they are one broker that lives, or several with
// Config.AnyReplicationFactor. Which broker serves it is not stored: every broker can.
func (s *Server) checkReplicas(replicas []int32) error {
	view := s.view()
	shown, live := replicas[:min(len(replicas), 10)], view.Brokers()[0].ID
	switch {
	case len(replicas) == 0:
		return deny(kerr.InvalidReplicaAssignment, "the partition has no replicas: name one of the brokers, such as %d", live)
	case len(replicas) > 1 && !s.cfg.AnyReplicationFactor:
		return lacking("replicas", kerr.InvalidReplicaAssignment, "replicas %v: the store keeps a partition's copies; assign it to one of the brokers alone, such as %d, or start weir with --any-replication-factor", shown, live)
	}
	there := make(map[int32]bool)
	for _, id := range replicas {
		if !view.Has(id) || !first(there, id) {
			return lacking("replicas", kerr.InvalidReplicaAssignment, "replicas %v: broker %d does not live, or is named twice; name brokers that live, such as %d", shown, id, live)
		}
	}
	return nil
}
