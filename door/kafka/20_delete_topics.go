package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/acl"
)

// deleteTopics deletes topics by name or, from version 6 on, by id: a few store calls for hundreds
// of them.
func (s *Server) deleteTopics(ctx context.Context, r *request, in *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	out := in.ResponseKind().(*kmsg.DeleteTopicsResponse)
	asked := in.Topics
	for _, name := range in.TopicNames { // before version 6
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		asked = append(asked, t)
	}
	again := repeated(asked, func(t kmsg.DeleteTopicsRequestTopic) string { return nameOrID(t.Topic, t.TopicID) })
	var rows []*deletedTopic
	var names []string
	for _, ask := range asked {
		skip, err := again.refuse(nameOrID(ask.Topic, ask.TopicID))
		if skip {
			continue
		}
		t := &deletedTopic{DeleteTopicsRequestTopic: ask, err: err}
		if err == nil {
			t.err = s.findDeleted(r, t)
		}
		if rows = append(rows, t); t.err == nil && t.TopicID == noTopicID {
			names = append(names, *t.Topic)
		}
	}
	// Another process may have deleted a topic, and created another with its name.
	now, err := s.log.TopicsNow(ctx, names)
	var doomed []eventlog.Topic
	var of []*deletedTopic
	for _, t := range rows {
		if t.err == nil && t.TopicID == noTopicID {
			if t.topic, t.err = now[*t.Topic], err; t.err == nil && t.topic.Version == 0 {
				t.err = fmt.Errorf("%w: %q", eventlog.ErrUnknownTopic, *t.Topic)
			}
		}
		if t.err == nil {
			t.err = r.mutates(len(t.topic.Partitions))
		}
		if t.err == nil {
			doomed, of = append(doomed, t.topic), append(of, t)
		}
	}
	for i, err := range s.log.DeleteTopics(ctx, doomed...) {
		if of[i].err = err; of[i].TopicID != noTopicID && errors.Is(err, eventlog.ErrUnknownTopic) { // the topic was deleted meanwhile; another topic may have its name
			of[i].err = unknownID(of[i].TopicID)
		}
	}
	for _, row := range rows {
		if row.err != nil {
			s.trouble("DeleteTopics", row.err)
		}
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID = row.Topic, row.TopicID
		if row.topic.Name != "" {
			t.Topic, t.TopicID = &row.topic.Name, row.topic.ID
		}
		t.ErrorCode, t.ErrorMessage = codeOf(row.err)
		out.Topics = append(out.Topics, t)
	}
	return out
}

// deletedTopic is one topic of a request.
type deletedTopic struct {
	kmsg.DeleteTopicsRequestTopic
	topic eventlog.Topic // Version 0: it was not found
	err   error
}

// findDeleted finds the topic that is named by its id, and checks whether the client may delete it;
// one that is named by its name is not looked for yet.
func (s *Server) findDeleted(r *request, t *deletedTopic) error {
	switch {
	case (t.Topic == nil) == (t.TopicID == noTopicID):
		return deny(kerr.InvalidRequest, "name a topic either by its name or by its id, not by both")
	case t.Topic == nil:
		topic, err := s.topicByID(r, acl.Delete, t.TopicID)
		if err == nil {
			t.topic = topic
		}
		return err
	}
	return r.permitName(acl.Delete, *t.Topic)
}
