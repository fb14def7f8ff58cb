package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// retentionTick is the shortest time between two retention checks of a partition.
	retentionTick = 5 * time.Second
	// retentionEveryMax is the longest, as Kafka's log.retention.check.interval.ms.
	retentionEveryMax = 5 * time.Minute
	// The interval between two checks is at most the retention time divided by retentionShare, but
	// not below retentionTick: otherwise records to keep for one minute would be kept for six.
	retentionShare = 20
	// sweepEvery is the time between two sweeps of producers that were silent for long.
	sweepEvery = 10 * time.Minute
	// catalogKept is how many changes of topics partition 0 keeps.
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
				if err := l.keep(ctx, t, p, now); err != nil && ctx.Err() == nil {
					l.cfg.Logger.Warn("retention check failed; trying again later", "topic", t.Name, "partition", i, "err", err)
				}
			}
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

// keep trims one partition: by age first, then by size.
func (l *Log) keep(ctx context.Context, t Topic, p Partition, now time.Time) error {
	changed := l.IncarnationChanged()
	age, size := t.Retention()
	held, _ := l.tail.known(p)
	if held.First == held.Next {
		return nil
	}
	if age >= 0 {
		before, err := l.seekOne(ctx, Goal{Partition: p, At: Timestamp(now.Add(-age).UnixMilli())})
		if err != nil {
			return err
		}
		if before > held.First { // by this process's clock
			kv, err := l.Get(ctx, EpochKey)
			if err != nil {
				return err
			}
			if past := kv.Past(); past.Before(now) {
				if before, err = l.seekOne(ctx, Goal{Partition: p, At: Timestamp(past.Add(-age).UnixMilli())}); err != nil {
					return err
				}
			}
		}
		if before > held.First {
			if dated, err := l.dated(ctx, p, before-1); err != nil {
				return err
			} else if dated {
				if err := l.trimAsSet(ctx, changed, t, p, before); err != nil {
					return err
				}
			}
		}
	}
	held, _ = l.tail.known(p)
	if size >= 0 && held.Bytes > size && held.First < held.Next {
		before, err := l.seekOne(ctx, Goal{Partition: p, Bytes: max(size, 1)})
		if err != nil {
			return err
		}
		if before > held.First {
			return l.trimAsSet(ctx, changed, t, p, before)
		}
	}
	return nil
}

// trimAsSet trims, if the topic's settings are still those that this process knows: the process may
// have been stopped, or not have polled yet. That costs one store call more for each trim. If they
// changed, the next check uses the new ones.
func (l *Log) trimAsSet(ctx context.Context, changed <-chan struct{}, t Topic, p Partition, before Offset) error {
	now, err := l.TopicNow(ctx, t.Name)
	switch {
	case err != nil && !errors.Is(err, ErrUnknownTopic):
		return err
	case err != nil || now.Version != t.Version:
		return l.loadCatalog(ctx)
	}
	return l.TrimFound(ctx, changed, p, before)
}

// dated reports whether the batch that holds an offset has a timestamp. The age of records without
// one is unknown: they are deleted by size, or together with later records that are too old.
func (l *Log) dated(ctx context.Context, p Partition, at Offset) (bool, error) {
	got, err := l.Fetch(ctx, Want{Spans: []Span{{Partition: p, From: at, MaxBytes: 1}}})
	if err != nil {
		return false, err
	}
	if isDamaged(got[0].Err) {
		return true, nil // the store knows its time; a damaged batch must not keep later batches for ever
	}
	// No batch: another broker trimmed first.
	return len(got[0].Batches) > 0 && got[0].Batches[0].MaxTime > NoTimestamp, nil
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
				Checks: []Check{{Key: kv.Key, Version: kv.Version}}, // unless it appended just now
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
		return l.TrimFound(ctx, changed, catalogPartition, held.Next-catalogKept)
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
	there, err := l.EachBounds(ctx, of...) // of a topic that this process has not heard of, too
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
