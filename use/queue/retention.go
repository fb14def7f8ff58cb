package queue

import (
	"context"
	"errors"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/use/claims"
)

// A topic that a queue created has no retention by time: that would delete messages that nobody has
// handled yet. Instead a message that all its queues have handled is deleted at the age of Kafka's
// default retention, so that other readers of the topic can read it until then.
const (
	retentionMs = "retention.ms"
	forEver     = "-1"
	handledFor  = 7 * 24 * time.Hour
	// retainEvery is the mean time between two checks of a process.
	retainEvery = time.Hour
)

// retain removes old messages that were handled, until ctx ends. Several processes may do so
// concurrently.
func (qs *Queues) retain(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retainEvery/2 + chance.N(retainEvery)):
		}
		qs.forgetAllGone(ctx) // the keys of purged and deleted queues that other processes left
		qs.keepOwning(ctx)
		if err := qs.removeHandled(ctx); err != nil && ctx.Err() == nil {
			qs.logger.Warn("old handled messages were not deleted; trying again later", "again", retainEvery, "err", err)
		}
	}
}

// removeHandled deletes, from topics that queues created, the messages that are older than
// handledFor and that all their queues have handled. It costs a few trips for hundreds of
// partitions.
func (qs *Queues) removeHandled(ctx context.Context) error {
	changed := qs.log.IncarnationChanged()
	var all []definition
	err := qs.log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		all = append(all, d)
		return err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	floors := make(map[eventlog.Partition]map[string]eventlog.Offset) // by partition and the queue's id
	var keys []string
	var of []readBy
	for _, d := range all {
		for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
			topic, err := qs.log.TopicByID(id)
			if err != nil {
				continue // the topic was deleted, or another process just made it
			}
			for _, p := range topic.Partitions {
				keys, of = append(keys, d.keyOf(p)), append(of, readBy{d.id, p})
			}
		}
	}
	err = qs.each(ctx, keys, func(i int, s *claims.State) error {
		if floors[of[i].partition] == nil {
			floors[of[i].partition] = make(map[string]eventlog.Offset)
		}
		if mine, there := s.Find(of[i].partition); there {
			floors[of[i].partition][of[i].queue] = mine.Floor
		}
		return nil
	})
	if err != nil {
		return err
	}
	now, _, err := qs.clock.Now(ctx)
	if err != nil {
		return err
	}
	return qs.removeOld(ctx, changed, all, floors, now-claims.Time(handledFor.Milliseconds()))
}

// readBy is a partition that a queue reads; queue is the queue's id.
type readBy struct {
	queue     string
	partition eventlog.Partition
}

// removeOld trims the partitions of topics that queues made: it removes messages that are older
// than a moment, and that all queues that read their topic have handled.
func (qs *Queues) removeOld(ctx context.Context, changed <-chan struct{}, all []definition, floors map[eventlog.Partition]map[string]eventlog.Offset, before claims.Time) error {
	trims := handledBelow(qs.log, all, floors)
	goals := make([]eventlog.Goal, len(trims))
	for i, t := range trims {
		goals[i] = eventlog.Goal{Partition: t.Partition, At: eventlog.Timestamp(before)}
	}
	young, err := qs.log.Seek(ctx, goals)
	if err != nil {
		return err
	}
	var old []eventlog.Trim
	var last []eventlog.Goal // each finds the last batch from which something is to be removed, if that batch has a time
	var failed []error
	for i, t := range trims {
		bounds, _ := qs.log.Known(t.Partition)
		t.Before = min(t.Before, young[i].At)
		switch {
		case young[i].Err != nil:
			failed = append(failed, young[i].Err)
		case t.Before > bounds.First:
			old, last = append(old, t), append(last, eventlog.Goal{Partition: t.Partition, At: 0, From: t.Before - 1})
		}
	}
	found, err := qs.log.Seek(ctx, last)
	if err != nil {
		return err
	}
	var dated []eventlog.Trim
	for i, t := range old {
		// A record without a time is of unknown age: if it is the last one to remove, nothing is
		// removed yet.
		if failed = append(failed, found[i].Err); found[i].Err == nil && found[i].At < t.Before {
			dated = append(dated, t)
		}
	}
	return errors.Join(append(failed, qs.log.TrimFound(ctx, changed, dated...)...)...)
}

// handledBelow returns trims for the partitions of the topics that queues made: below Trim.Before
// all queues that read the partition have handled all messages. A partition without such messages
// has no trim.
func handledBelow(log *eventlog.Log, all []definition, floors map[eventlog.Partition]map[string]eventlog.Offset) (trims []eventlog.Trim) {
	seen := make(map[eventlog.TopicID]bool)
	for _, made := range all {
		for _, id := range append([]eventlog.TopicID{made.topicID}, made.levels...) {
			topic, err := log.TopicByID(id)
			if !made.made || seen[id] || err != nil || topic.Config[retentionMs] != forEver {
				continue // the topic was deleted, or somebody has set its retention
			}
			seen[id] = true
			for _, p := range topic.Partitions {
				bounds, _ := log.Known(p)
				floor := bounds.Next
				for _, d := range all {
					if d.reads(id) {
						floor = min(floor, floors[p][d.id]) // 0: the queue has claimed nothing yet
					}
				}
				if floor > bounds.First {
					trims = append(trims, eventlog.Trim{Partition: p, Before: floor})
				}
			}
		}
	}
	return trims
}
