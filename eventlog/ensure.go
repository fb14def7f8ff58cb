package eventlog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// EnsureTopic creates the topic if there is none of that name. If there is one it changes nothing:
// if the topic does not have the partitions and settings that spec has, the error is an
// ErrTopicDiffers that lists the differences. With 0 partitions the topic is created with one, and
// may have any number if it exists. Other errors are those of CreateTopic.
func (l *Log) EnsureTopic(ctx context.Context, spec TopicSpec) (Topic, error) {
	asked := spec
	if spec.Partitions == 0 {
		spec.Partitions = 1
	}
	if err := spec.Check(); err != nil {
		return Topic{}, err
	}
	there, err := l.TopicNow(ctx, spec.Name) // from the store: another process may have deleted or changed it, and this process may not know yet
	if errors.Is(err, ErrUnknownTopic) {
		t, err := l.CreateTopic(ctx, spec)
		if !errors.Is(err, ErrTopicExists) {
			return t, err
		}
		if there, err = l.TopicNow(ctx, spec.Name); err != nil { // another process created it first
			return Topic{}, err
		}
	} else if err != nil {
		return Topic{}, err
	}
	if known, lookup := l.Topic(ctx, spec.Name); lookup != nil || known.Version != there.Version {
		if err := l.RefreshTopics(ctx); err != nil { // later calls must go to this topic, not to a deleted one of the same name
			return Topic{}, err
		}
	}
	return there, there.Differs(asked)
}

// Differs returns an ErrTopicDiffers that lists what spec asks for and the topic does not have; nil
// if there is nothing. It does not compare 0 partitions, nor settings that spec does not have.
func (t Topic) Differs(spec TopicSpec) error {
	var list []string
	if n := len(t.Partitions); spec.Partitions != 0 && spec.Partitions != n {
		list = append(list, fmt.Sprintf("%d partitions, but %d were asked for", n, spec.Partitions))
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Config)) {
		if is := t.Setting(name); is != spec.Config[name] {
			list = append(list, fmt.Sprintf("%s=%s, but %s was asked for", name, is, spec.Config[name]))
		}
	}
	if len(list) == 0 {
		return nil
	}
	return fmt.Errorf("%w: topic %q has %s", ErrTopicDiffers, t.Name, strings.Join(list, "; "))
}
