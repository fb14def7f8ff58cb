package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// A topic says which queues need it (eventlog.Owner). A queue becomes an owner of the topic when it
// is created or altered, before it uses the topic. ownTopics mends what is wrong: a queue may be
// older than this rule, a process of an older version drops the owners when it changes the topic,
// and a process may end between the deletion of a queue and disown.

// owner is how a topic says that a queue needs it. A queue that keeps the order of keys needs all
// messages of a key in one partition.
func (d definition) owner() eventlog.Owner {
	return eventlog.Owner{Key: defKey(d.name), Name: fmt.Sprintf("queue %q", d.name), Fixed: d.settings.KeyOrder}
}

// ownerOfLetters is owner for the topics of the queue's dead letters and handled messages, which
// have no order.
func (d definition) ownerOfLetters() eventlog.Owner {
	o := d.owner()
	o.Fixed = false
	return o
}

// same checks that the queue's definition is still the one that was read, or that there is still
// none.
func (d definition) same() eventlog.Check {
	return eventlog.Check{Key: defKey(d.name), Version: d.version}
}

// unchanged returns the checks that no topic was changed since it was found. The entry with which a
// queue begins to use topics needs them: see eventlog.Log.OwnTopic.
func unchanged(topics ...eventlog.Topic) (checks []eventlog.Check) {
	for _, t := range topics {
		if t.Version != 0 {
			checks = append(checks, t.Unchanged())
		}
	}
	return checks
}

// addChecks adds the checks that the entry does not have yet.
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
		eventlog.Pause(ctx, failures)
	}
}

// ownTopics makes every topic say which queues need it. If all do, that costs four store calls, and
// one more for each thousand queues or topics.
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
			d := defined[o.Key] // the zero value if the queue was deleted
			if _, needs := d.needs(t); needs || !strings.HasPrefix(o.Key, defPrefix) {
				continue
			}
			if err := qs.log.DisownTopic(ctx, t, o, eventlog.Check{Key: o.Key, Version: d.version}); err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
				return err
			}
		}
		for _, d := range defined {
			by, needs := d.needs(t)
			if !needs || t.Owned(by) {
				continue
			}
			if t.Compacted() {
				qs.logger.Warn("a topic that a queue needs has cleanup.policy=compact, which is ignored: set it to delete", "topic", t.Name, "queue", d.name)
			}
			if _, err := qs.log.OwnTopic(ctx, t, by, d.same()); err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
				return err
			}
		}
	}
	return nil
}

func (qs *Queues) anyOwned() bool {
	return slices.ContainsFunc(qs.log.Topics(), func(t eventlog.Topic) bool { return len(t.Owners) > 0 })
}

// needs reports whether a topic has the queue's messages, dead letters or handled messages, and
// what the topic has to say of the queue.
func (d definition) needs(t eventlog.Topic) (by eventlog.Owner, needs bool) {
	switch {
	case d.name == "":
		return by, false
	case d.reads(t.ID):
		return d.owner(), true
	}
	return d.ownerOfLetters(), t.Name == d.name+deadSuffix || t.Name == d.name+doneSuffix
}

// own makes the topics of a queue's messages say that the queue needs them, and returns them. It
// leaves out topics that were deleted.
func (qs *Queues) own(ctx context.Context, d definition) (owned []eventlog.Topic, err error) {
	for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
		t, err := qs.topicByID(ctx, id)
		if err == nil {
			t, err = qs.log.OwnTopic(ctx, t, d.owner(), d.same())
		}
		if errors.Is(err, eventlog.ErrUnknownTopic) {
			continue
		}
		if err != nil {
			return nil, err
		}
		owned = append(owned, t)
	}
	return owned, nil
}

// disown makes the topics of a deleted queue forget it.
func (qs *Queues) disown(ctx context.Context, queue string) {
	d := definition{name: queue}
	for _, t := range qs.log.Topics() {
		i := slices.IndexFunc(t.Owners, func(o eventlog.Owner) bool { return o.Key == defKey(queue) })
		if i < 0 {
			continue
		}
		if err := qs.log.DisownTopic(ctx, t, t.Owners[i], d.same()); err != nil && ctx.Err() == nil {
			qs.logger.Info("a topic cannot be told now that its queue was deleted; trying again later", "topic", t.Name, "queue", queue, "err", err)
		}
	}
}
