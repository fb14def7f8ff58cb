package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// createPartitions adds partitions to topics.
func (s *Server) createPartitions(ctx context.Context, request *request, in *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	out := in.ResponseKind().(*kmsg.CreatePartitionsResponse)
	again := repeated(in.Topics, func(t kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	for _, asked := range in.Topics {
		skip, err := again.refuse(asked.Topic)
		if skip {
			continue
		}
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = asked.Topic
		if err == nil {
			err = s.addPartitions(ctx, request, asked, in.ValidateOnly)
		}
		if err != nil {
			s.refused(request, err)
		}
		t.ErrorCode, t.ErrorMessage = codeOf(err)
		out.Topics = append(out.Topics, t)
	}
	return out
}

func (s *Server) addPartitions(ctx context.Context, r *request, asked kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	topic, err := s.topicNow(ctx, r, acl.Alter, asked.Topic)
	if err != nil {
		return err
	}
	more := int(asked.Count) - len(topic.Partitions)
	if more <= 0 {
		return deny(kerr.InvalidPartitions, "topic %q has %d partitions, and the request asks for %d; partitions can be added, but not removed", topic.Name, len(topic.Partitions), asked.Count)
	}
	if asked.Assignment != nil && len(asked.Assignment) != more {
		return deny(kerr.InvalidReplicaAssignment, "the request adds %d partitions to topic %q, but assigns replicas for %d", more, topic.Name, len(asked.Assignment))
	}
	for _, a := range asked.Assignment {
		if err := s.checkReplicas(a.Replicas); err != nil {
			return err
		}
	}
	if validateOnly {
		return eventlog.TopicSpec{Name: topic.Name, Partitions: int(asked.Count)}.Check()
	}
	if err := r.mutates(more); err != nil {
		return err
	}
	_, err = s.log.ChangeTopic(ctx, topic.Name, eventlog.TopicChange{ID: topic.ID, Partitions: int(asked.Count)})
	return err
}
