package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// A topic says which queues need it (eventlog.Owner). A queue is noted when it is created or altered, before it uses the topic. ownTopics mends what is missing: a queue may be
// older than that note, a process of an older version drops the note when it changes the topic, and a process may end between the deletion of a queue and disown.

// owner is how a topic says that a queue needs it.
func owner(queue string) eventlog.Owner {
	return eventlog.Owner{Key: defKey(queue), Name: fmt.Sprintf("queue %q", queue)}
}

// unchanged returns the checks that no topic was changed since it was found. The entry with which a queue begins to use topics needs them: see
// eventlog.Log.OwnTopic.
func unchanged(topics ...eventlog.Topic) (checks []eventlog.Check) {
	for _, t := range topics {
		if t.Version != 0 {
			checks = append(checks, t.Unchanged())
		}
	}
	return checks
}

// addChecks adds those that the entry does not have yet.
func addChecks(e *eventlog.Entry, checks ...eventlog.Check) {
	for _, c := range checks {
		if !slices.Contains(e.Checks, c) {
			e.Checks = append(e.Checks, c)
		}
	}
}

// keepOwning calls ownTopics until it succeeds, or ctx ends.
func (qs *Queues) keepOwning(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		err := qs.ownTopics(ctx)
		if err == nil {
			return
		}
		if failures++; failures == 1 && ctx.Err() == nil && !isStale(err) {
			qs.logger.Warn("topics cannot be told now which queues need them; trying again", "err", err)
		}
		pause(ctx, failures)
	}
}

// ownTopics makes every topic say which queues need it. If all do, that costs three store calls.
func (qs *Queues) ownTopics(ctx context.Context) error {
	defined := make(map[string]definition) // by the definition's key
	err := qs.log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		defined[kv.Key] = d
		return err
	})
	if err != nil || len(defined) == 0 && !qs.anyOwned() {
		return err
	}
	if err := qs.log.RefreshTopics(ctx); err != nil {
		return err
	}
	for _, t := range qs.log.Topics() {
		for _, o := range t.Owners {
			d, is := defined[o.Key]
			if !strings.HasPrefix(o.Key, defPrefix) || is && d.needs(t) {
				continue
			}
			if err := qs.log.DisownTopic(ctx, t, o, d.version); err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
				return err
			}
		}
		for _, d := range defined {
			if !d.needs(t) || t.Owned(owner(d.name)) {
				continue
			}
			if t.Compacted() {
				qs.logger.Warn("a topic that a queue needs has cleanup.policy=compact, which is ignored: set it to delete", "topic", t.Name, "queue", d.name)
			}
			if _, err := qs.log.OwnTopic(ctx, t, owner(d.name)); err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
				return err
			}
		}
	}
	return nil
}

func (qs *Queues) anyOwned() bool {
	return slices.ContainsFunc(qs.log.Topics(), func(t eventlog.Topic) bool { return len(t.Owners) > 0 })
}

// needs reports whether a topic has the queue's messages, dead letters or handled messages.
func (d definition) needs(t eventlog.Topic) bool {
	return d.reads(t.ID) || t.Name == d.name+deadSuffix || t.Name == d.name+doneSuffix
}

// disown makes the topics of a deleted queue forget it.
func (qs *Queues) disown(ctx context.Context, queue string) {
	for _, t := range qs.log.Topics() {
		if err := qs.log.DisownTopic(ctx, t, owner(queue), 0); err != nil && ctx.Err() == nil {
			qs.logger.Info("a topic cannot be told now that its queue was deleted; trying again later", "topic", t.Name, "queue", queue, "err", err)
		}
	}
}
