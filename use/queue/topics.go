package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/weir-log/weir/eventlog"
)

// A finder finds the topics for one call that creates, alters or purges a queue, and creates those
// that do not exist.
type finder struct {
	qs   *Queues
	made bool // it created one: an error of the call must not say that nothing happened
}

// topic is Queues.makeTopic.
func (f *finder) topic(ctx context.Context, spec eventlog.TopicSpec) (t eventlog.Topic, made bool, err error) {
	t, made, err = f.qs.makeTopic(ctx, spec)
	f.made = f.made || made
	return t, made, err
}

// outcome returns an error that ends the call. If a topic was created it is ErrUnsure, and so does
// not match the error that it quotes: that one says that nothing happened.
func (f *finder) outcome(err error, but string) error {
	if !f.made {
		return err
	}
	return fmt.Errorf("%w: its topics exist, but %s: try again (%v)", eventlog.ErrUnsure, but, err)
}

// check refuses topics that cannot be the queue's, before the first of the others is created. It
// returns those that exist, and costs a store call.
func (f *finder) check(ctx context.Context, names ...string) (map[string]eventlog.Topic, error) {
	there, err := f.qs.log.TopicsNow(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if t, is := there[name]; is {
			if err := f.qs.usable(t); err != nil {
				return nil, err
			}
		}
	}
	return there, nil
}

// makeLevels creates the missing topics of the settings' priorities, and returns them.
func (f *finder) makeLevels(ctx context.Context, d *definition) (levels []eventlog.Topic, err error) {
	if d.settings.Priorities < len(d.levels)+1 {
		return nil, &eventlog.InvalidError{What: "priorities", Value: strconv.Itoa(d.settings.Priorities), Why: fmt.Sprintf("the queue has %d levels, and that number can only be raised", len(d.levels)+1)}
	}
	if d.settings.Priorities == len(d.levels)+1 {
		return nil, nil // before topics are looked up: a queue can be paused even if its topic was deleted
	}
	of, err := f.qs.topicByID(ctx, d.topicID)
	if err != nil {
		return nil, err
	}
	for n := len(d.levels) + 1; n < d.settings.Priorities; n++ {
		t, _, err := f.topic(ctx, topicSpec(d.owner(), d.name+levelSuffix+strconv.Itoa(n), len(of.Partitions), of.MaxMessageBytes()))
		if err != nil {
			return nil, err
		}
		d.levels, levels = append(d.levels, t.ID), append(levels, t)
	}
	return levels, nil
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
// spec.Owner, if that is set, among the owners that need it. It may have been created even if there
// is an error.
func (qs *Queues) makeTopic(ctx context.Context, spec eventlog.TopicSpec) (t eventlog.Topic, made bool, err error) {
	t, err = qs.log.Topic(ctx, spec.Name)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		t, err = qs.log.CreateTopic(ctx, spec)
		made = err == nil
	}
	if errors.Is(err, eventlog.ErrTopicExists) { // another process was first
		t, err = qs.log.Topic(ctx, spec.Name)
	}
	if err == nil {
		err = qs.usable(t)
	}
	if err == nil && spec.Owner.Key != "" {
		t, err = qs.log.OwnTopic(ctx, t, spec.Owner)
	}
	return t, made, err
}

// usable refuses a compacted topic, and one with a Writer, which alone may append to the topic: a
// queue appends retries. On a store made of shards it refuses a topic that is not on that of the
// queues.
func (qs *Queues) usable(t eventlog.Topic) error {
	if t.Writer != "" {
		return &eventlog.InvalidError{What: "topic", Value: t.Name, Why: fmt.Sprintf("only %s append to it, but a queue must append messages that are tried again; choose another topic", t.Writer)}
	}
	if t.Compacted() {
		return &eventlog.InvalidError{What: "topic", Value: t.Name, Why: "it is compacted (cleanup.policy), which would remove messages that nobody has handled; choose another topic"}
	}
	return qs.log.CheckTogether(t, defPrefix, "a queue")
}
