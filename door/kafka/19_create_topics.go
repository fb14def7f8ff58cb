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
	again := repeated(in.Topics, func(t kmsg.CreateTopicsRequestTopic) string { return t.Topic })
	var asked []*createdTopic
	var creating newTopics
	var rows []*createdTopic // the rows of the topics in creating
	for _, a := range in.Topics {
		skip, err := again.refuse(a.Topic)
		if skip {
			continue
		}
		t := &createdTopic{name: a.Topic, err: err}
		if asked = append(asked, t); err != nil {
			continue
		}
		spec, err := s.createAsked(request, in, a)
		if t.err = err; err != nil {
			continue
		}
		if in.ValidateOnly {
			t.topic = eventlog.Topic{Name: spec.Name, Partitions: make([]eventlog.Partition, spec.Partitions), Config: spec.Config}
			if t.err = creating.check(ctx, request, spec); t.err == nil {
				creating.note(spec.Name)
			}
		} else if t.err = creating.add(ctx, request, spec); t.err == nil {
			rows = append(rows, t)
		}
		if t.shown = request.permit(acl.DescribeConfigs, acl.Topic, spec.Name); t.shown != nil || t.err != nil {
			continue
		}
		if err := request.claimAnswer(ctx, configsCost(topicConfigs(eventlog.Topic{Config: spec.Config}), false, false)); err != nil {
			return nil
		}
	}
	topics, errs := s.log.CreateTopics(ctx, creating.specs...)
	for i, t := range rows {
		t.topic, t.err = topics[i], errs[i]
	}
	out := in.ResponseKind().(*kmsg.CreateTopicsResponse)
	for _, t := range asked {
		if t.err != nil {
			s.refused(request, t.err)
		}
		out.Topics = append(out.Topics, t.answer())
	}
	return out
}

// createdTopic is one topic of a request.
type createdTopic struct {
	name  string
	topic eventlog.Topic
	shown error // why the client is told nothing of the settings (KIP-525)
	err   error
}

func (t *createdTopic) answer() kmsg.CreateTopicsResponseTopic {
	out := kmsg.NewCreateTopicsResponseTopic()
	out.Topic = t.name
	if out.ErrorCode, out.ErrorMessage = codeOf(t.err); t.err != nil {
		return out
	}
	out.TopicID = t.topic.ID
	if t.shown != nil {
		out.NumPartitions, out.ReplicationFactor, out.ConfigErrorCode, out.Configs = -1, -1, errorCode(t.shown), nil
		return out
	}
	out.NumPartitions, out.ReplicationFactor = int32(len(t.topic.Partitions)), 1
	for _, c := range topicConfigs(t.topic) {
		r := kmsg.NewCreateTopicsResponseTopicConfig()
		r.Name, r.Value, r.Source = c.name, &c.value, int8(c.source)
		out.Configs = append(out.Configs, r)
	}
	return out
}

// createAsked returns the topic that a request asks for, if the client may create it and there is
// memory to answer with its settings.
func (s *Server) createAsked(request *request, in *kmsg.CreateTopicsRequest, asked kmsg.CreateTopicsRequestTopic) (eventlog.TopicSpec, error) {
	if err := request.permitCreate(asked.Topic); err != nil {
		return eventlog.TopicSpec{}, err
	}
	partitions, err := s.partitionsAsked(asked)
	if err != nil {
		return eventlog.TopicSpec{}, err
	}
	spec := eventlog.TopicSpec{Name: asked.Topic, Partitions: partitions, Config: make(map[string]string)}
	for _, c := range asked.Configs {
		if c.Value == nil {
			return eventlog.TopicSpec{}, deny(kerr.InvalidConfig, "%s of topic %q is null; leave it out to use the default", c.Name, asked.Topic)
		}
		spec.Config[c.Name] = *c.Value
	}
	return spec, request.checkAnswer(configsCost(topicConfigs(eventlog.Topic{Config: spec.Config}), false, false), len(in.Topics))
}

// partitionsAsked returns the requested number of partitions. An assignment of replicas is accepted
// if checkReplicas accepts the replicas of each partition; its partitions are counted, and which
// broker gets which is ignored.
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
