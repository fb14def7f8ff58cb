package eventlog

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

const (
	// retentionTick is the shortest time between two retention checks of a partition.
	retentionTick = 5 * time.Second
	// retentionShare of the time for which a topic keeps its records passes between two checks, if that is less than Config.RetentionEvery:
	// records that are kept for a minute are not kept for six.
	retentionShare = 20
	// sweepEvery is the time between two looks for what is left over: trash, and producers long silent.
	sweepEvery = 10 * time.Minute
	// catalogKept is how many changes of topics partition 0 remembers.
	catalogKept = 1000
)

// retain trims what is past its topic's retention, and sweeps up. Every broker on a store does so; trimming twice does no harm.
func (l *Log) retain(ctx context.Context) error {
	checked := make(map[Partition]time.Time) // when a partition was last checked, or first seen
	var swept time.Time
	tick := time.NewTicker(min(retentionTick, l.cfg.RetentionEvery))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.prefetch.forgetStale()
		if l.reachable() != nil {
			continue
		}
		now := time.Now()
		seen := make(map[Partition]time.Time)
		for _, t := range l.Topics() {
			every := l.retentionEvery(t)
			for _, p := range t.Partitions {
				last, known := checked[p]
				if !known { // records with old timestamps in a new partition: their readers get a whole interval, as in Kafka
					last = now
				}
				if now.Sub(last) < every {
					seen[p] = last
					continue
				}
				seen[p] = now
				if err := l.keep(ctx, t, p, now); err != nil && ctx.Err() == nil {
					l.cfg.Logger.Warn("retention check failed; it is tried again", "topic", t.Name, "partition", p, "err", err)
				}
			}
		}
		checked = seen // partitions that are gone are gone from here, too
		if now.Sub(swept) >= sweepEvery {
			swept = now
			if err := l.sweep(ctx); err != nil && ctx.Err() == nil {
				l.cfg.Logger.Warn("sweep failed; it is tried again", "every", sweepEvery, "err", err)
			}
		}
	}
}

// retentionEvery is the time between two checks of a topic's partitions.
func (l *Log) retentionEvery(t Topic) time.Duration {
	age, _ := t.Retention()
	if age < 0 {
		return l.cfg.RetentionEvery
	}
	return min(max(age/retentionShare, retentionTick), l.cfg.RetentionEvery)
}

// keep trims one partition: by age first, then by size.
func (l *Log) keep(ctx context.Context, t Topic, p Partition, now time.Time) error {
	age, size := t.Retention()
	held, _ := l.tail.known(p)
	if held.First == held.Next {
		return nil
	}
	if age >= 0 {
		before, err := l.Seek(ctx, p, Goal{At: Timestamp(now.Add(-age).UnixMilli())})
		if err != nil {
			return err
		}
		if before > held.First {
			if dated, err := l.dated(ctx, p, before-1); err != nil {
				return err
			} else if dated {
				if err := l.trimAsSet(ctx, t, p, before); err != nil {
					return err
				}
			}
		}
	}
	held, _ = l.tail.known(p)
	if size >= 0 && held.Bytes > size && held.First < held.Next {
		before, err := l.Seek(ctx, p, Goal{Bytes: max(size, 1)})
		if err != nil {
			return err
		}
		if before > held.First {
			return l.trimAsSet(ctx, t, p, before)
		}
	}
	return nil
}

// trimAsSet trims, if the topic is still set as this process believes: it may have been stopped for long, or may not have heard yet. One trip more for
// each trim; where the settings are others the next check goes by them.
func (l *Log) trimAsSet(ctx context.Context, t Topic, p Partition, before Offset) error {
	now, err := l.TopicNow(ctx, t.Name)
	switch {
	case err != nil && !errors.Is(err, ErrUnknownTopic):
		return err
	case err != nil || now.Version != t.Version:
		return l.loadCatalog(ctx)
	}
	return l.Trim(ctx, p, before)
}

// dated reports whether the batch that holds an offset has a time. Records without one are of unknown age: they go by
// size, or with younger ones that are too old.
func (l *Log) dated(ctx context.Context, p Partition, at Offset) (bool, error) {
	got, err := l.Fetch(ctx, Want{Spans: []Span{{Partition: p, From: at, MaxBytes: 1}}})
	if err != nil {
		return false, err
	}
	if isDamaged(got[0].Err) {
		return true, nil // the store gave it a time; it must not keep for ever what comes after it
	}
	// There is none where another broker trimmed first.
	return len(got[0].Batches) > 0 && got[0].Batches[0].MaxTime > NoTimestamp, nil
}

// sweep finishes deletions that were cut short, forgets producers that were silent for long, and shortens the catalog's history.
func (l *Log) sweep(ctx context.Context) error {
	err := l.ListAll(ctx, trashPrefix, func(kv KeyValue) error {
		n, err := strconv.ParseInt(strings.TrimPrefix(kv.Key, trashPrefix), 10, 64)
		if err != nil {
			return nil // not ours
		}
		return l.emptyTrash(ctx, Partition(n))
	})
	if err != nil {
		return err
	}
	var silent []*Ticket
	err = l.ListAll(ctx, producerPrefix, func(kv KeyValue) error {
		if kv.Age > l.cfg.ProducerExpiry {
			silent = append(silent, l.Submit(ctx, Entry{
				Checks: []Check{{Key: kv.Key, Version: kv.Version}}, // unless it spoke just now
				Puts:   []Put{{Key: kv.Key}},
			}))
		}
		return nil
	})
	for _, t := range silent {
		_, _ = t.Wait(ctx) // what did not go now goes with the next sweep
	}
	if err != nil {
		return err
	}
	if held, _ := l.tail.known(catalogPartition); held.Next-held.First > 2*catalogKept {
		return l.Trim(ctx, catalogPartition, held.Next-catalogKept)
	}
	return nil
}
