package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/weir-log/weir/eventlog"
)

// offsetsTopic is where Kafka keeps what groups commit. weir keeps that as keyed state, and this topic stays empty, but it
// is there: clients look for it, and tell by its mark which topics are not for people.
const offsetsTopic = "__consumer_offsets"

// isInternal tells the topics that belong to the broker from those of its clients.
func isInternal(topic string) bool { return topic == offsetsTopic }

// openOffsetsTopic creates the offsets topic when the first group is looked for, as Kafka does. A group does without it, so a
// failure stops nobody.
func (s *Server) openOffsetsTopic(ctx context.Context) {
	if _, err := s.log.Topic(ctx, offsetsTopic); err == nil {
		return
	}
	_, err := s.createTopic(ctx, eventlog.TopicSpec{Name: offsetsTopic, Partitions: 1})
	if err != nil && errorCode(err) != kerr.TopicAlreadyExists.Code { // another client's request was first
		s.trouble("create "+offsetsTopic, err)
	}
}

// checkAppends refuses clients' records for topics that are not theirs.
func checkAppends(topic eventlog.Topic) error {
	if isInternal(topic.Name) {
		return deny(kerr.InvalidTopicException, "topic %q is internal: clients may not append to it", topic.Name)
	}
	return nil
}
