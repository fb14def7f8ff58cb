package weir

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/weir-log/weir/eventlog"
)

// Topic is a topic's definition.
type Topic struct {
	Name string
	// Partitions is the number of partitions. More partitions let more processes share the work.
	// The number can be raised later, which moves keys to other partitions. 0 in EnsureTopic:
	// create the topic with one; accept any number if it exists.
	Partitions int
	// Config has the settings that were set, by Kafka's names: retention.ms, retention.bytes,
	// max.message.bytes, compression.type, message.timestamp.type, … and weir's own, weir.linger.ms
	// and weir.linger.bytes. All other settings have their defaults.
	Config map[string]string
}

// EnsureTopic creates the topic if there is none of that name. If there is one it changes nothing:
// it returns nil if the topic is as t says, otherwise an ErrTopicDiffers that lists the
// differences. So every process may call it when it starts.
func (l *Log) EnsureTopic(ctx context.Context, t Topic) error {
	if err := l.usable(); err != nil {
		return wrap(err, "ensure topic %q", t.Name)
	}
	_, err := l.log.EnsureTopic(ctx, eventlog.TopicSpec{Name: t.Name, Partitions: t.Partitions, Config: t.Config})
	if errors.Is(err, ErrTopicDiffers) {
		return fmt.Errorf("%w. Ask for what the topic has, or change the topic with RaisePartitions and AlterTopic", err)
	}
	return wrap(err, "ensure topic %q", t.Name)
}

// RaisePartitions raises the topic's number of partitions; nothing changes if it has that many
// already. From then on keys may go to other partitions than before: a key's events keep their
// order before the change, and after it, but not across it.
func (l *Log) RaisePartitions(ctx context.Context, topic string, partitions int) error {
	err := l.usable()
	switch {
	case err != nil:
	case partitions == 0: // ChangeTopic would take 0 for no change
		err = &InvalidError{What: "number of partitions", Value: "0", Why: "a topic has at least 1"}
	default:
		_, err = l.log.ChangeTopic(ctx, topic, eventlog.TopicChange{Partitions: partitions})
	}
	return wrap(err, "raise the partitions of topic %q", topic)
}

// AlterTopic changes settings of a topic. An empty value resets a setting to its default; settings
// that config does not name stay.
func (l *Log) AlterTopic(ctx context.Context, topic string, config map[string]string) error {
	if err := l.usable(); err != nil {
		return wrap(err, "alter topic %q", topic)
	}
	_, err := l.log.AlterTopic(ctx, topic, func(set map[string]string) error {
		for name, value := range config {
			if value == "" {
				delete(set, name)
			} else {
				set[name] = value
			}
		}
		return nil
	})
	return wrap(err, "alter topic %q", topic)
}

// Topics lists all topics, by name, as they are in the store.
func (l *Log) Topics(ctx context.Context) ([]Topic, error) {
	err := l.usable()
	if err == nil {
		err = l.log.RefreshTopics(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("list topics: %w", err)
	}
	var topics []Topic
	for _, t := range l.log.Topics() {
		topics = append(topics, Topic{Name: t.Name, Partitions: len(t.Partitions), Config: maps.Clone(t.Config)})
	}
	return topics, nil
}

// Bounds says what a partition holds: the offsets from First up to, but not including, Next, in
// about Bytes bytes.
type Bounds struct {
	First, Next, Bytes int64
}

// Bounds returns the current bounds of a topic's partitions, in the order of their numbers: one
// store call.
func (l *Log) Bounds(ctx context.Context, topic string) ([]Bounds, error) {
	if err := l.usable(); err != nil {
		return nil, wrap(err, "bounds of topic %q", topic)
	}
	t, err := l.log.Topic(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("bounds of topic %q: %w", topic, err)
	}
	slices, err := l.log.Bounds(ctx, t.Partitions...)
	if err != nil {
		return nil, fmt.Errorf("bounds of topic %q: %w", topic, err)
	}
	list := make([]Bounds, len(slices))
	for i, s := range slices {
		if s.Err != nil {
			return nil, fmt.Errorf("bounds of %s/%d: %w", topic, i, s.Err)
		}
		list[i] = Bounds{First: int64(s.Bounds.First), Next: int64(s.Bounds.Next), Bytes: s.Bounds.Bytes}
	}
	return list, nil
}

// DeleteTopic deletes a topic and all its events. After that the name is free; groups have no
// offsets in a new topic of that name. ErrUnknownTopic if there is no such topic. After ErrUnsure
// the topic is either deleted or unchanged.
func (l *Log) DeleteTopic(ctx context.Context, topic string) error {
	err := l.usable()
	if err == nil {
		err = l.log.DeleteTopic(ctx, topic)
	}
	return wrap(err, "delete topic %q", topic)
}

// wrap adds to an error what was tried; nil stays nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
