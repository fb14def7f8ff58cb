package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// retentionTick is the shortest time between two retention checks of a partition.
	retentionTick = 5 * time.Second
	// retentionEveryMax is the longest, as Kafka's log.retention.check.interval.ms.
	retentionEveryMax = 5 * time.Minute
	// The interval between two checks is at most the retention time divided by retentionShare: with
	// a check every five minutes, records to keep for one minute would be kept for six. It is never
	// below retentionTick.
	retentionShare = 20
	// sweepEvery is the time between two sweeps of producers that were silent for long.
	sweepEvery = 10 * time.Minute
	// catalogKept is how many changes of topics partition 0 keeps: once it has more than twice as
	// many, it is trimmed to that number.
	catalogKept = 1000
)

// retain trims the records that are past their topic's retention, and sweeps. Every broker that
// writes a store does so; trimming twice does no harm. It also frees what was prefetched for
// readers that went away.
func (l *Log) retain(ctx context.Context) error {
	checked := make(map[Partition]time.Time) // when a partition was last checked, or first seen
	var swept time.Time
	tick := time.NewTicker(retentionTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.prefetch.forgetStale()
		if l.readOnly || l.reachable() != nil {
			continue
		}
		l.forgetLeftovers(ctx)
		l.completeDeletions(ctx)
		now := time.Now()
		seen := make(map[Partition]time.Time)
		var due []kept
		for _, t := range l.Topics() {
			every := l.retentionEvery(t)
			for i, p := range t.Partitions {
				last, known := checked[p]
				if !known { // even with old timestamps, readers get a whole interval before the first check, as in Kafka
					last = now
				}
				if now.Sub(last) < every {
					seen[p] = last
					continue
				}
				seen[p] = now
				due = append(due, kept{topic: t, number: i, Partition: p})
			}
		}
		for some := range slices.Chunk(due, seekPage) {
			l.keepEach(ctx, some, now)
		}
		if failed := slices.DeleteFunc(due, func(k kept) bool { return k.err == nil }); len(failed) > 0 && ctx.Err() == nil {
			first := failed[0]
			l.cfg.Logger.Warn("retention checks failed; trying again later", "partitions", len(failed), "topic", first.topic.Name, "partition", first.number, "err", first.err)
		}
		checked = seen // without deleted partitions
		if now.Sub(swept) >= sweepEvery {
			swept = now
			if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Logger.Warn("sweep failed; trying again later", "every", sweepEvery, "err", err)
			}
		}
	}
}

// retentionEvery is the time between two checks of a topic's partitions.
func (l *Log) retentionEvery(t Topic) time.Duration {
	age, _ := t.Retention()
	if age < 0 {
		return retentionEveryMax
	}
	return min(max(age/retentionShare, retentionTick), retentionEveryMax)
}

// kept is a partition whose retention is checked.
type kept struct {
	topic  Topic
	number int // the partition's number in its topic
	Partition
	before Offset // offsets below it are past their retention
	err    error  // why only this partition failed
}

// keepEach trims partitions, and sets their errors: a few store calls for hundreds of them. If a
// call fails for a reason that may be one partition's, such as damage, it finds that partition by
// halves, and trims the others.
func (l *Log) keepEach(ctx context.Context, all []kept, now time.Time) {
	err := l.keep(ctx, all, now)
	switch {
	case err == nil:
	case len(all) > 1 && !errors.Is(err, ErrUnavailable) && ctx.Err() == nil:
		l.keepEach(ctx, all[:len(all)/2], now)
		l.keepEach(ctx, all[len(all)/2:], now)
	default:
		for i := range all {
			all[i].err = err
		}
	}
}

// keep trims partitions, by age first, then by size.
func (l *Log) keep(ctx context.Context, all []kept, now time.Time) error {
	changed := l.IncarnationChanged()
	if err := l.keepYoung(ctx, changed, all, now); err != nil {
		return err
	}
	return l.keepSmall(ctx, changed, all)
}

// keepYoung trims what is too old. A record without a time is of unknown age: it is deleted by
// size, or together with later records that are too old.
func (l *Log) keepYoung(ctx context.Context, changed <-chan struct{}, all []kept, now time.Time) error {
	older := func(than time.Time) func(*kept, Bounds) (Goal, bool) {
		return func(k *kept, _ Bounds) (Goal, bool) {
			age, _ := k.topic.Retention()
			return Goal{At: Timestamp(than.Add(-age).UnixMilli())}, age >= 0
		}
	}
	old, err := l.find(ctx, pointers(all), older(now))
	if err != nil || len(old) == 0 { // nothing is too old by this process's clock
		return err
	}
	kv, err := l.Get(ctx, EpochKey)
	if err != nil {
		return err
	}
	if past := kv.Past(); past.Before(now) {
		if old, err = l.find(ctx, old, older(past)); err != nil {
			return err
		}
	}
	last := make([]Goal, len(old)) // each finds the batch below the offset where to trim, if that batch has a time
	for i, k := range old {
		last[i] = Goal{Partition: k.Partition, At: NoTimestamp + 1, From: k.before - 1}
	}
	found, err := l.Seek(ctx, last)
	if err != nil {
		return err
	}
	var dated []*kept
	for i, k := range old {
		if k.err = found[i].Err; k.err == nil && found[i].At < k.before { // the batch has a time, and no other process trimmed first
			dated = append(dated, k)
		}
	}
	return l.trimAsSet(ctx, changed, dated)
}

// keepSmall trims what is too much.
func (l *Log) keepSmall(ctx context.Context, changed <-chan struct{}, all []kept) error {
	large, err := l.find(ctx, pointers(all), func(k *kept, held Bounds) (Goal, bool) {
		_, size := k.topic.Retention()
		return Goal{Bytes: max(size, 1)}, size >= 0 && held.Bytes > size
	})
	if err != nil {
		return err
	}
	return l.trimAsSet(ctx, changed, large)
}

func pointers(all []kept) []*kept {
	to := make([]*kept, len(all))
	for i := range all {
		to[i] = &all[i]
	}
	return to
}

// find seeks the goals of partitions that hold anything and have not failed. It returns the
// partitions that hold something before the goal, each with the goal's offset in the field before.
func (l *Log) find(ctx context.Context, among []*kept, goal func(*kept, Bounds) (Goal, bool)) (before []*kept, err error) {
	var goals []Goal
	var of []*kept
	for _, k := range among {
		held, _ := l.tail.known(k.Partition)
		if held.First == held.Next || k.err != nil {
			continue
		}
		if g, has := goal(k, held); has {
			g.Partition = k.Partition
			goals, of = append(goals, g), append(of, k)
		}
	}
	found, err := l.Seek(ctx, goals)
	if err != nil {
		return nil, err
	}
	for i, k := range of {
		held, _ := l.tail.known(k.Partition)
		if k.before, k.err = found[i].At, found[i].Err; k.err == nil && k.before > held.First {
			before = append(before, k)
		}
	}
	return before, nil
}

// trimAsSet trims partitions below before, if the settings of their topics are still those that
// this process knows: the process may have been stopped, or not have polled yet. That costs a store
// call more. If they changed, the next check uses the new ones.
func (l *Log) trimAsSet(ctx context.Context, changed <-chan struct{}, some []*kept) error {
	if len(some) == 0 {
		return nil
	}
	var names []string
	for _, k := range some {
		names = append(names, k.topic.Name)
	}
	slices.Sort(names)
	now, err := l.TopicsNow(ctx, slices.Compact(names))
	if err != nil {
		return err
	}
	var trims []Trim
	var of []*kept
	outdated := false
	for _, k := range some {
		if now[k.topic.Name].Version != k.topic.Version { // 0: it was deleted
			outdated = true
			continue
		}
		trims, of = append(trims, Trim{k.Partition, k.before}), append(of, k)
	}
	for i, err := range l.TrimFound(ctx, changed, trims...) {
		of[i].err = err
	}
	if outdated {
		return l.loadCatalog(ctx)
	}
	return nil
}

// producerExpiry is how long an idempotent producer may be silent before it is forgotten, as with
// Kafka's producer.id.expiration.ms.
const producerExpiry = 24 * time.Hour

// sweep deletes the state of producers that were silent for long, and of the compaction of
// partitions that are gone. It trims partition 0.
func (l *Log) sweep(ctx context.Context) error {
	var silent []*Ticket
	err := l.ListAll(ctx, producerPrefix, func(kv KeyValue) error {
		if kv.Age > producerExpiry {
			silent = append(silent, l.Submit(ctx, Entry{
				Checks: []Check{{Key: kv.Key, Version: kv.Version}}, // refused if the producer appended just now
				Puts:   []Put{{Key: kv.Key}},
			}))
		}
		return nil
	})
	for _, t := range silent {
		_, _ = t.Wait(ctx) // a failure is repeated by the next sweep
	}
	if err != nil {
		return err
	}
	if err := l.sweepCompacted(ctx); err != nil {
		return err
	}
	changed := l.IncarnationChanged()
	if held, _ := l.tail.known(catalogPartition); held.Next-held.First > 2*catalogKept {
		return l.TrimFound(ctx, changed, Trim{catalogPartition, held.Next - catalogKept})[0]
	}
	return nil
}

// sweepCompacted deletes the states of the compaction of partitions that the store does not have
// any more: numbers of partitions are not used again. It takes one trip per thousand states, and
// one more if some may be left over.
func (l *Log) sweepCompacted(ctx context.Context) error {
	var states []KeyValue
	var of []Partition
	known := l.catalog.Load()
	err := l.ListAll(ctx, CompactPrefix, func(kv KeyValue) error {
		n, err := strconv.ParseInt(strings.TrimPrefix(kv.Key, CompactPrefix), 10, 64)
		if err != nil {
			return fmt.Errorf("key %q: %w", kv.Key, err)
		}
		if p := Partition(n); known.deleted(p) {
			states, of = append(states, kv), append(of, p)
		}
		return nil
	})
	if err != nil || len(states) == 0 {
		return err
	}
	there, err := l.EachBounds(ctx, of...) // a partition may be of a topic that this process has not heard of yet
	if err != nil {
		return err
	}
	var gone []*Ticket
	for i, kv := range states {
		if errors.Is(there[i].Err, ErrNoPartition) {
			gone = append(gone, l.Submit(ctx, Entry{
				Checks:      []Check{{Key: kv.Key, Version: kv.Version}},
				Puts:        []Put{{Key: kv.Key}},
				UsesReserve: true,
			}))
		}
	}
	for _, t := range gone {
		_, _ = t.Wait(ctx) // a failure is repeated by the next sweep
	}
	return nil
}
