package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// deleteTopics deletes topics by name or, from version 6 on, by id.
func (s *Server) deleteTopics(ctx context.Context, r *request, in *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	out := in.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := in.Topics
	for _, name := range in.TopicNames { // before version 6
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		asked = append(asked, t)
	}
	again := repeated(asked, func(t kmsg.DeleteTopicsRequestTopic) string { return nameOrID(t.Topic, t.TopicID) })
	for _, ask := range asked {
		skip, err := again.refuse(nameOrID(ask.Topic, ask.TopicID))
		if skip {
			continue
		}
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID = ask.Topic, ask.TopicID
		if err == nil {
			err = s.deleteAsked(ctx, r, ask, &t)
		}
		if err != nil {
			s.trouble("DeleteTopics", err)
		}
		t.ErrorCode, t.ErrorMessage = codeOf(err)
		out.Topics = append(out.Topics, t)
	}
	return out
}

func (s *Server) deleteAsked(ctx context.Context, r *request, ask kmsg.DeleteTopicsRequestTopic, t *kmsg.DeleteTopicsResponseTopic) error {
	switch {
	case (ask.Topic == nil) == (ask.TopicID == noTopicID):
		return deny(kerr.InvalidRequest, "name a topic either by its name or by its id, not by both")
	case ask.Topic == nil:
		topic, err := s.topicByID(r, acl.Delete, ask.TopicID)
		if err != nil {
			return err
		}
		t.Topic = &topic.Name
		if err := r.mutates(len(topic.Partitions)); err != nil {
			return err
		}
		err = s.log.DeleteThisTopic(ctx, topic)
		if errors.Is(err, eventlog.ErrUnknownTopic) { // it was deleted meanwhile; another topic may have its name
			return unknownID(topic.ID)
		}
		return err
	default:
		topic, err := s.topicNow(ctx, r, acl.Delete, *ask.Topic)
		if err != nil {
			return err
		}
		t.TopicID = topic.ID
		if err := r.mutates(len(topic.Partitions)); err != nil {
			return err
		}
		return s.log.DeleteThisTopic(ctx, topic)
	}
}
