package kafka

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// createPartitions adds partitions to topics: a few store calls for hundreds of them.
func (s *Server) createPartitions(ctx context.Context, request *request, in *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	out := in.ResponseKind().(*kmsg.CreatePartitionsResponse)
	again := repeated(in.Topics, func(t kmsg.CreatePartitionsRequestTopic) string { return t.Topic })
	var errs []error // the error of each topic in the answer
	var asked []kmsg.CreatePartitionsRequestTopic
	var names []string // those of asked that the client may alter
	for _, a := range in.Topics {
		skip, err := again.refuse(a.Topic)
		if skip {
			continue
		}
		if err == nil {
			err = request.permit(acl.Alter, acl.Topic, a.Topic)
		}
		if err == nil {
			err = unknownIfInvalid(eventlog.CheckTopicName(a.Topic))
		}
		if err == nil {
			names = append(names, a.Topic)
		}
		asked, errs = append(asked, a), append(errs, err)
	}
	// Another process may have deleted a topic, and created another with its name.
	topics, err := s.log.TopicsNow(ctx, names)
	var changes []eventlog.TopicChange
	var rows []int
	for i, a := range asked {
		if errs[i] == nil {
			errs[i] = err
		}
		if errs[i] != nil {
			continue
		}
		change := eventlog.TopicChange{Name: a.Topic, ID: topics[a.Topic].ID, Partitions: int(a.Count)}
		if errs[i] = s.checkGrowth(request, topics[a.Topic], a, in.ValidateOnly); errs[i] == nil && !in.ValidateOnly {
			changes, rows = append(changes, change), append(rows, i)
		}
	}
	_, failed := s.log.ChangeTopics(ctx, changes...)
	for i, err := range failed {
		errs[rows[i]] = err
	}
	for i, a := range asked {
		t := kmsg.NewCreatePartitionsResponseTopic()
		t.Topic = a.Topic
		if errs[i] != nil {
			s.refused(request, errs[i])
		}
		t.ErrorCode, t.ErrorMessage = codeOf(errs[i])
		out.Topics = append(out.Topics, t)
	}
	return out
}

// checkGrowth returns why a topic may not get the partitions that are asked for. If they are to be
// made, it counts them for the client's quota.
func (s *Server) checkGrowth(r *request, topic eventlog.Topic, asked kmsg.CreatePartitionsRequestTopic, validateOnly bool) error {
	if topic.Version == 0 {
		return fmt.Errorf("%w: %q", eventlog.ErrUnknownTopic, asked.Topic)
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
	return r.mutates(more)
}
