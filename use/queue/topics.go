package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-log/weir/eventlog"
)

// makeLevels creates the missing topics of the settings' priorities, and returns them.
func (qs *Queues) makeLevels(ctx context.Context, d *definition) (made []eventlog.Topic, err error) {
	if d.settings.Priorities < len(d.levels)+1 {
		return nil, &eventlog.InvalidError{What: "priorities", Value: strconv.Itoa(d.settings.Priorities), Why: fmt.Sprintf("the queue has %d levels, and that number can only be raised", len(d.levels)+1)}
	}
	if d.settings.Priorities == len(d.levels)+1 {
		return nil, nil // before topics are looked up: a queue can be paused even if its topic was deleted
	}
	of, err := qs.topicByID(ctx, d.topicID)
	if err != nil {
		return nil, err
	}
	for n := len(d.levels) + 1; n < d.settings.Priorities; n++ {
		t, err := qs.topic(ctx, d.owner(), d.name+levelSuffix+strconv.Itoa(n), len(of.Partitions), of.MaxMessageBytes())
		if err != nil {
			return nil, err
		}
		d.levels, made = append(d.levels, t.ID), append(made, t)
	}
	return made, nil
}

// topic finds a topic, or creates it with messageBytes as its max.message.bytes. Afterwards the
// topic names the parameter by among the owners that need it.
func (qs *Queues) topic(ctx context.Context, by eventlog.Owner, name string, partitions, messageBytes int) (eventlog.Topic, error) {
	t, _, err := qs.makeTopic(ctx, topicSpec(by, name, partitions, messageBytes))
	return t, err
}

// topicSpec describes a topic of a queue: it has no retention by time, which could delete messages
// that nobody has handled.
func topicSpec(by eventlog.Owner, name string, partitions, messageBytes int) eventlog.TopicSpec {
	spec := eventlog.TopicSpec{Name: name, Partitions: partitions, Config: map[string]string{retentionMs: forEver}, Owner: by,
		Beside: func(eventlog.TopicID) string { return defPrefix }} // queues move messages to and from topics that all of them share
	if messageBytes > 0 {
		spec.Config["max.message.bytes"] = strconv.Itoa(min(messageBytes, 1<<31-1))
	}
	return spec
}

// makeTopic finds a topic, or creates it; made: it was created. Afterwards the topic names
// spec.Owner, if that is set, among the owners that need it. makeTopic refuses a compacted topic,
// and one with a Writer, which alone may append to the topic: a queue appends retries.
func (qs *Queues) makeTopic(ctx context.Context, spec eventlog.TopicSpec) (t eventlog.Topic, made bool, err error) {
	t, err = qs.log.Topic(ctx, spec.Name)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		t, err = qs.log.CreateTopic(ctx, spec)
		made = err == nil
	}
	if errors.Is(err, eventlog.ErrTopicExists) { // another process was first
		t, err = qs.log.Topic(ctx, spec.Name)
	}
	if err == nil && t.Writer != "" {
		err = &eventlog.InvalidError{What: "topic", Value: spec.Name, Why: fmt.Sprintf("only %s append to it, but a queue must append messages that are tried again; choose another topic", t.Writer)}
	}
	if err == nil && t.Compacted() {
		err = &eventlog.InvalidError{What: "topic", Value: spec.Name, Why: "it is compacted (cleanup.policy), which would remove messages that nobody has handled; choose another topic"}
	}
	if err == nil {
		err = qs.log.CheckTogether(t, defPrefix, "a queue")
	}
	if err == nil && spec.Owner.Key != "" {
		t, err = qs.log.OwnTopic(ctx, t, spec.Owner)
	}
	return t, made, err
}
