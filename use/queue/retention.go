package queue

import (
	"context"
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

// removeHandled costs two trips, and up to three for each partition that is trimmed, or might be.
func (qs *Queues) removeHandled(ctx context.Context) error {
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
				continue // it was deleted, or another process just made it
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
	for _, d := range all {
		if !d.made {
			continue
		}
		for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
			if err := qs.removeFrom(ctx, id, all, floors, now-claims.Time(handledFor.Milliseconds())); err != nil {
				return err
			}
		}
	}
	return nil
}

// readBy is a partition that a queue reads, by its id.
type readBy struct {
	queue     string
	partition eventlog.Partition
}

// removeFrom trims the partitions of a topic: it removes messages that are older than a moment, and
// that all queues that read the topic have handled.
func (qs *Queues) removeFrom(ctx context.Context, id eventlog.TopicID, all []definition, floors map[eventlog.Partition]map[string]eventlog.Offset, before claims.Time) error {
	topic, err := qs.log.TopicByID(id)
	if err != nil || topic.Config[retentionMs] != forEver {
		return nil // it was deleted, or somebody has set its retention
	}
	changed := qs.log.IncarnationChanged()
	goals := make([]eventlog.Goal, len(topic.Partitions))
	for i, p := range topic.Partitions {
		goals[i] = eventlog.Goal{Partition: p, At: eventlog.Timestamp(before)}
	}
	young, err := qs.log.Seek(ctx, goals)
	if err != nil {
		return err
	}
	for i, p := range topic.Partitions {
		bounds, _ := qs.log.Known(p)
		floor := bounds.Next
		for _, d := range all {
			if d.reads(id) {
				floor = min(floor, floors[p][d.id]) // 0: it has claimed nothing yet
			}
		}
		if floor <= bounds.First {
			continue
		}
		if young[i].Err != nil {
			return young[i].Err
		}
		to := min(floor, young[i].At)
		if to <= bounds.First {
			continue
		}
		// A record without a time is of unknown age: if it is the last one to remove, nothing is
		// removed yet.
		if rec, err := qs.records.read(ctx, p, to-1); err == nil && rec.Timestamp < 0 {
			continue
		} else if err != nil && !gone(err) {
			return err
		}
		if err := qs.log.TrimFound(ctx, changed, p, to); err != nil {
			return err
		}
	}
	return nil
}
