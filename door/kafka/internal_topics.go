package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/eventlog"
)

// offsetsTopic exists because clients look for it, and because its internal flag tells them which
// topics to hide.
const offsetsTopic = eventlog.OffsetsTopic

// openOffsetsTopic creates the offsets topic when the first group is looked up, as Kafka does.
// Groups work without it, so a failure does not fail the request.
func (s *Server) openOffsetsTopic(ctx context.Context, r *request) {
	if _, err := s.log.Topic(ctx, offsetsTopic); err == nil || s.log.ReadOnly() {
		return
	}
	var creating newTopics
	err := creating.add(ctx, r, eventlog.TopicSpec{Name: offsetsTopic, Partitions: 1})
	if err == nil {
		_, err = s.log.CreateTopic(ctx, creating.specs[0])
	}
	if err != nil && errorCode(err) != kerr.TopicAlreadyExists.Code { // another client's request was first
		s.trouble("create "+offsetsTopic, err)
	}
}

// checkAppends refuses clients' records for internal topics, as Kafka does
// (ReplicaManager.appendRecords), and for topics to which only one of weir's uses may append
// (Topic.Writer).
func checkAppends(topic eventlog.Topic) error {
	switch {
	case eventlog.InternalTopic(topic.Name):
		return deny(kerr.InvalidTopicException, "topic %q is internal: clients may not append to it", topic.Name)
	case topic.Name == eventlog.AuditTopic && topic.Writer != "":
		return deny(kerr.InvalidTopicException, "only %s append to topic %q: clients may read it (docs/security.md)", topic.Writer, topic.Name)
	case topic.Writer != "":
		return deny(kerr.InvalidTopicException, "only %s may append to topic %q: Kafka clients may read it; append over HTTP or with the Go library (docs/streams.md)", topic.Writer, topic.Name)
	}
	return nil
}
