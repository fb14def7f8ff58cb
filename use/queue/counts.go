package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Count is the number of messages of one queue.
type Count struct {
	Name string
	Stats
}

// Counts counts each queue's messages, and the delayed messages of all queues. It costs one store call per thousand keys of queues,
// and one for each partition whose oldest message is not cached. What other processes have just written may be missing.
func (qs *Queues) Counts(ctx context.Context) (counts []Count, delayed int64, err error) {
	now, latest, err := qs.clock.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	var all []definition
	err = qs.log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		all = append(all, d)
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("count the messages of all queues: %w", err)
	}
	parts := make(map[string]map[eventlog.Partition]*part) // by the prefix of the states
	for _, prefix := range []string{statePrefix, deadPrefix, wheelStates} {
		if err := qs.listParts(ctx, prefix, parts); err != nil {
			return nil, 0, fmt.Errorf("count the messages of all queues: %w", err)
		}
	}
	byName := make(map[string]eventlog.Topic)
	for _, t := range qs.log.Topics() {
		byName[t.Name] = t
	}
	for _, d := range all {
		c := Count{Name: d.name}
		for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
			topic, err := qs.log.TopicByID(id)
			if err != nil {
				continue // it was deleted, or another process just made it
			}
			for _, p := range topic.Partitions {
				mine, next := qs.partNow(parts[statesOf(d.id)], p)
				if err := qs.age(ctx, &c.Stats, p, mine.count(&c.Stats, now, next), latest); err != nil {
					return nil, 0, fmt.Errorf("count the messages of queue %q: %w", d.name, err)
				}
			}
		}
		for _, p := range byName[d.name+deadSuffix].Partitions {
			c.Dead += qs.left(parts[deadPrefix+d.id+"/"], p)
		}
		counts = append(counts, c)
	}
	for _, p := range byName[wheelTopic].Partitions {
		delayed += qs.left(parts[wheelStates], p)
	}
	return counts, delayed, nil
}

// listParts reads the states under a prefix, by the prefix of the key and by partition: one store call per thousand.
func (qs *Queues) listParts(ctx context.Context, prefix string, parts map[string]map[eventlog.Partition]*part) error {
	return qs.log.ListAll(ctx, prefix, func(kv eventlog.KeyValue) error {
		s, err := decode(kv.Value)
		if err != nil {
			return fmt.Errorf("key %s does not hold a state: %w", kv.Key, err)
		}
		of := kv.Key[:strings.LastIndexByte(kv.Key, '/')+1]
		if parts[of] == nil {
			parts[of] = make(map[eventlog.Partition]*part)
		}
		for i := range s.parts {
			parts[of][s.parts[i].partition] = &s.parts[i]
		}
		return nil
	})
}

// partNow is the state of a partition's messages, and the partition's end.
func (qs *Queues) partNow(parts map[eventlog.Partition]*part, p eventlog.Partition) (mine part, next eventlog.Offset) {
	bounds, _ := qs.log.Known(p)
	bounds.Partition = p
	return partIn(parts, bounds), bounds.Next
}

// partIn is the state of a partition that has these bounds.
func partIn(parts map[eventlog.Partition]*part, b eventlog.Bounds) (mine part) {
	if known := parts[b.Partition]; known != nil {
		mine = *known
	}
	mine.trimmed(b.First)
	return mine
}

// left counts the unfinished messages of a partition.
func (qs *Queues) left(parts map[eventlog.Partition]*part, p eventlog.Partition) int64 {
	mine, next := qs.partNow(parts, p)
	return mine.unresolved() + int64(max(next-mine.next, 0))
}

// age raises s.Oldest to the age of the oldest ready message of a partition; −1: there is none.
func (qs *Queues) age(ctx context.Context, s *Stats, p eventlog.Partition, oldest eventlog.Offset, latest Time) error {
	if oldest < 0 {
		return nil
	}
	rec, err := qs.records.read(ctx, p, oldest)
	if gone(err) || errors.Is(err, errNoneYet) {
		return nil
	}
	if err == nil && rec.Timestamp >= 0 {
		s.Oldest = max(s.Oldest, time.Duration(latest-Time(rec.Timestamp))*time.Millisecond)
	}
	return err
}
