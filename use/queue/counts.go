package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// Count is the number of messages of one queue.
type Count struct {
	Name string
	Stats
}

// Counts counts each queue's messages, and the delayed messages of all queues. It costs one store
// call per thousand queues, one per thousand partitions or 4 MiB of states, and one for each
// partition whose oldest message is not cached. What other processes have just written may be
// missing.
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
	byName := make(map[string]eventlog.Topic)
	for _, t := range qs.log.Topics() {
		byName[t.Name] = t
	}
	counts = make([]Count, len(all))
	var keys []string
	var visits []func(*state) error
	left := func(to *int64, key string, p eventlog.Partition) {
		keys, visits = append(keys, key), append(visits, func(st *state) error {
			bounds := qs.boundsOf(p)
			*to += st.within(bounds).left(bounds.Next)
			return nil
		})
	}
	for i, d := range all {
		c := &counts[i]
		c.Name = d.name
		for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
			topic, err := qs.log.TopicByID(id)
			if err != nil {
				continue // it was deleted, or another process just made it
			}
			for _, p := range topic.Partitions {
				keys, visits = append(keys, d.keyOf(p)), append(visits, func(st *state) error {
					bounds := qs.boundsOf(p)
					return qs.age(ctx, &c.Stats, p, st.within(bounds).count(&c.Stats, now, bounds.Next), latest)
				})
			}
		}
		for _, p := range byName[d.name+deadSuffix].Partitions {
			left(&c.Dead, deadKey(d.id, p), p)
		}
	}
	for _, p := range byName[wheelTopic].Partitions {
		left(&delayed, wheelStateKey(p), p)
	}
	later, err := qs.delayed.counts(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("count the messages of all queues: %w", err)
	}
	for i, d := range all {
		counts[i].Delayed = countIn(later, d.name+"/"+d.id)
	}
	if err := qs.each(ctx, keys, func(i int, st *state) error { return visits[i](st) }); err != nil {
		return nil, 0, fmt.Errorf("count the messages of all queues: %w", err)
	}
	return counts, delayed, nil
}

// countIn returns the delayed messages of a queue; -1: unknown.
func countIn(delayed map[string]int64, to string) int64 {
	if delayed == nil {
		return -1
	}
	return delayed[to]
}

// boundsOf returns what this process knows of a partition.
func (qs *Queues) boundsOf(p eventlog.Partition) eventlog.Bounds {
	bounds, _ := qs.log.Known(p)
	bounds.Partition = p
	return bounds
}

// within returns the state of a partition that has these bounds.
func (s *state) within(b eventlog.Bounds) *part {
	mine := &part{partition: b.Partition}
	if known, there := s.find(b.Partition); there {
		*mine = *known
	}
	mine.trimmed(b.First)
	return mine
}

// left counts the unfinished messages of a partition that ends at next.
func (p *part) left(next eventlog.Offset) int64 {
	return p.unresolved() + int64(max(next-p.next, 0))
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
