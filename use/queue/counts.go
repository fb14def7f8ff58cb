package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// Count is the number of messages of one queue.
type Count struct {
	Name string
	Stats
}

// Counts counts each queue's messages, and the delayed messages of all queues. It costs one store
// call per thousand queues, one per thousand partitions or 4 MiB of states, and for the oldest
// messages as many as Stats. What other processes have just written may be missing.
func (qs *Queues) Counts(ctx context.Context) (counts []Count, delayed int64, err error) {
	now, latest, err := qs.clock.Now(ctx)
	if err != nil {
		return nil, 0, err
	}
	changed, waiting := qs.log.IncarnationChanged(), qs.delayed.queues() // before the definitions
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
	for _, d := range all {
		delete(waiting, d.name+"/"+d.id)
	}
	qs.delayed.forgetQueues(changed, func(_ eventlog.Partition, to string) bool { return waiting[to] && to != "" })
	counts = make([]Count, len(all))
	var keys []string
	var visits []func(*claims.State) error
	var ready []oldest
	left := func(to *int64, key string, p eventlog.Partition) {
		keys, visits = append(keys, key), append(visits, func(st *claims.State) error {
			bounds := qs.boundsOf(p)
			*to += st.Within(bounds).Left(bounds.Next)
			return nil
		})
	}
	for i, d := range all {
		c := &counts[i]
		c.Name = d.name
		for _, id := range append([]eventlog.TopicID{d.topicID}, d.levels...) {
			topic, err := qs.log.TopicByID(id)
			if err != nil {
				continue // the topic was deleted, or another process just made it
			}
			for _, p := range topic.Partitions {
				keys, visits = append(keys, d.keyOf(p)), append(visits, func(st *claims.State) error {
					bounds := qs.boundsOf(p)
					ready = append(ready, oldest{&c.Stats, p, c.Stats.add(st.Within(bounds), now, bounds.Stable())})
					return nil
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
	err = qs.each(ctx, keys, func(i int, st *claims.State) error { return visits[i](st) })
	if err == nil {
		err = qs.age(ctx, ready, latest)
	}
	if err != nil {
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

// oldest is the oldest ready message of a partition.
type oldest struct {
	of        *Stats
	partition eventlog.Partition
	offset    eventlog.Offset // -1: there is none
}

// ages remembers when the oldest ready message of a partition was enqueued, so that a queue from
// which nobody claims is not read each time that it is counted.
type ages struct {
	mu      sync.Mutex      // guards what follows
	changed <-chan struct{} // closed: the store may have been rewound, and have other messages there
	of      map[eventlog.Partition]aged
}

type aged struct {
	offset eventlog.Offset
	time   claims.Time // negative: unknown
}

// agesMax bounds the partitions that ages remembers.
const agesMax = 100_000

// get returns when a message was enqueued; known is false if ages does not remember that. First it
// forgets everything if the store may have been rewound.
func (a *ages) get(log *eventlog.Log, o oldest) (at claims.Time, known bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.changed == nil || isClosed(a.changed) {
		a.changed, a.of = log.IncarnationChanged(), make(map[eventlog.Partition]aged)
	}
	is, known := a.of[o.partition]
	return is.time, known && is.offset == o.offset
}

// keep remembers when a message was enqueued, unless changed is closed: then the store may have
// been rewound since the message was read.
func (a *ages) keep(changed <-chan struct{}, o oldest, at claims.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if isClosed(changed) || a.of == nil {
		return
	}
	if len(a.of) >= agesMax {
		clear(a.of)
	}
	a.of[o.partition] = aged{o.offset, at}
}

// age raises Stats.Oldest to the ages of messages: a store call for each thousand messages that are
// read for the first time, and one more for each 4 MiB of their batches.
func (qs *Queues) age(ctx context.Context, all []oldest, latest claims.Time) error {
	changed := qs.log.IncarnationChanged()
	count := func(o oldest, at claims.Time) {
		if at >= 0 {
			o.of.Oldest = max(o.of.Oldest, time.Duration(latest-at)*time.Millisecond)
		}
	}
	var unknown []oldest
	var spans []eventlog.Span
	for _, o := range all {
		if o.offset < 0 {
			continue
		}
		if at, known := qs.ages.get(qs.log, o); known {
			count(o, at)
			continue
		}
		unknown = append(unknown, o)
		spans = append(spans, eventlog.Span{Partition: o.partition, From: o.offset})
	}
	return qs.log.BatchesAt(ctx, spans, func(i int, s eventlog.Slice) error {
		at, err := qs.enqueuedAt(ctx, s, unknown[i].offset)
		if err != nil {
			return noneIfGone(err)
		}
		qs.ages.keep(changed, unknown[i], at)
		count(unknown[i], at)
		return nil
	})
}

// enqueuedAt returns the time of a record in the first batch of a slice.
func (qs *Queues) enqueuedAt(ctx context.Context, s eventlog.Slice, o eventlog.Offset) (claims.Time, error) {
	if errors.Is(s.Err, eventlog.ErrNoPartition) || s.Err == nil && len(s.Batches) == 0 {
		return 0, errNoRecord // the record was deleted meanwhile
	}
	if damaged := (*eventlog.DamagedError)(nil); errors.As(s.Err, &damaged) {
		return -1, nil
	}
	if s.Err != nil {
		return 0, s.Err
	}
	records, _, err := qs.records.decode(ctx, s.Batches[0])
	if ctx.Err() != nil {
		return 0, gaveUpDecoding(ctx, qs.log)
	}
	rec, missing := page{records: records, err: err}.find(o)
	if missing != nil {
		return -1, nil
	}
	return claims.Time(rec.Timestamp), nil
}
