package stream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/audit"
)

// Delete deletes a stream that is as expected: it exists no longer, and its events and snapshots
// cannot be read. A record with a null value, in the stream's partition, shows this to readers of
// the category. The category's topic keeps the events as long as its retention says.
//
// A deleted stream may be begun again, with NoStream or the version that it was at: its versions go
// on, so none is used twice. A stream that does not exist counts as deleted already
// (Appended.Duplicate).
func (c *Category) Delete(ctx context.Context, stream string, expected Expected) (Appended, error) {
	o := &op{stream: stream, expected: expected, deletes: true}
	o.records = []batch.Record{{Timestamp: time.Now().UnixMilli(), Key: []byte(stream), Headers: []batch.RecordHeader{{Key: HeaderType, Value: []byte(TypeDeleted)}}}}
	o.size = batch.SealedSize(&o.records[0])
	return c.remove(ctx, "delete", o, audit.Event{Verb: audit.StreamDelete, Object: c.Name() + "/" + stream, Before: streamTold{Stream: stream}})
}

// Forget removes a stream's events below a version, and its snapshots of earlier versions. The
// other events keep their versions. The category's topic keeps the events as long as its retention
// says.
func (c *Category) Forget(ctx context.Context, stream string, before int64) error {
	if before < 0 {
		return &eventlog.InvalidError{What: "version", Value: fmt.Sprint(before), Why: "it is negative"}
	}
	_, err := c.remove(ctx, "forget events of", &op{stream: stream, expected: Any, keep: before, unless: func(h head) bool { return h.exists() && before <= h.First }}, audit.Event{Verb: audit.StreamForget, Object: c.Name() + "/" + stream, After: streamTold{Stream: stream, Before: before}})
	return err
}

func (c *Category) remove(ctx context.Context, verb string, o *op, events ...audit.Event) (Appended, error) {
	err := checkName(o.stream)
	if err == nil && o.expected < Exists {
		err = &eventlog.InvalidError{What: "expected version", Value: fmt.Sprint(int64(o.expected)), Why: "use a version from 0 on, or Any, NoStream or Exists"}
	}
	var key string
	if err == nil {
		key, err = c.headKey(o.stream)
	}
	for _, event := range events {
		if err == nil {
			var e eventlog.Entry
			err = tell(ctx, c.owner.log, &e, key, event)
			o.told = append(o.told, e.Batches...)
		}
	}
	var done Appended
	if err == nil {
		done, err = c.owner.writer(c, o.stream).do(ctx, o)
	}
	if err != nil {
		return Appended{}, fmt.Errorf("%s stream %q of category %q: %w", verb, shorten(o.stream), c.Name(), err)
	}
	return done, nil
}

// sweepEvery is how often a process looks for keys that are no longer needed, sweepKeys how many
// keys one entry removes, and sweepSnapshots how many snapshots, each of which may be large.
const (
	sweepEvery     = time.Minute
	sweepKeys      = 500
	sweepSnapshots = 16
)

// Run removes what is no longer needed until ctx ends: events past their Retention, events and
// snapshots of deleted streams, and ids older than limits.IDAge. Any number of processes may run
// it: each removes only what is still there.
func (s *Streams) Run(ctx context.Context) error {
	if s.log.ReadOnly() {
		<-ctx.Done()
		return nil
	}
	streams, ids := time.NewTicker(sweepEvery), time.NewTicker(max(s.cfg.limits.IDAge/24, sweepEvery))
	defer streams.Stop()
	defer ids.Stop()
	for err := errors.Join(s.retain(ctx), s.sweep(ctx), s.sweepIDs(ctx)); ; {
		s.forgetDeleted()
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("old ids and the rest of deleted streams were not removed; trying again later", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-streams.C:
			err = errors.Join(s.retain(ctx), s.sweep(ctx))
		case <-ids.C:
			err = s.sweepIDs(ctx)
		}
	}
}

func (s *Streams) sweep(ctx context.Context) error {
	if err := s.sweepCategories(ctx); err != nil {
		return err
	}
	return s.log.ListAll(ctx, gonePrefix, func(kv eventlog.KeyValue) error {
		return s.sweepStream(ctx, kv)
	})
}

// sweepCategories removes the keys of categories that were deleted.
func (s *Streams) sweepCategories(ctx context.Context) error {
	var all []eventlog.KeyValue
	err := s.log.ListAll(ctx, categoryPrefix, func(kv eventlog.KeyValue) error { all = append(all, kv); return nil })
	if err != nil || len(all) == 0 {
		return err
	}
	if err := s.log.RefreshTopics(ctx); err != nil { // an unknown topic may only be new to this process
		return err
	}
	topics := s.topicsByMark()
	for _, mark := range all {
		if _, there := topics[mark.Key]; there {
			continue
		}
		id := strings.TrimPrefix(mark.Key, categoryPrefix)
		if deleted, err := s.deleted(ctx, id); err != nil {
			return err
		} else if !deleted {
			continue
		}
		for _, prefix := range []string{gonePrefix, subjectPrefix, tagPrefix, taggedPrefix, eventPrefix, snapshotPrefix, idPrefix, headPrefix} {
			for {
				left, err := s.log.List(ctx, prefix+id+"/", "", sweepSnapshots)
				if err != nil {
					return err
				}
				if len(left) == 0 {
					break
				}
				if done, err := s.forget(ctx, left, nil); !done {
					return err
				}
			}
		}
		if done, err := s.forget(ctx, []eventlog.KeyValue{mark}, []string{retainedPrefix + id}); !done {
			return err
		}
	}
	return nil
}

// forgetDeleted drops what this process knows of categories that were deleted. What is in use stays
// until the next call.
func (s *Streams) forgetDeleted() {
	known := make(map[string]bool)
	for _, t := range s.log.Topics() {
		known[t.ID.String()] = true
	}
	deleted := func(key, prefix string) bool {
		id, _, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
		return !known[id]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.writers, func(key string, w *writer) bool { return deleted(key, headPrefix) && w.Idle() })
	maps.DeleteFunc(s.keys, func(key string, _ subjectKey) bool { return deleted(key, subjectPrefix) })
	maps.DeleteFunc(s.counts, func(id eventlog.TopicID, _ *Counts) bool { return !known[id.String()] })
}

// deleted reports whether an unknown category was deleted: its partitions are deleted with its
// name. If they are there, the store has lost the name only: shard 0 was restored to a backup that
// lacks the category. Then it stays, like its records, because a later backup may have the name.
func (s *Streams) deleted(ctx context.Context, id string) (bool, error) {
	kvs, err := s.log.List(ctx, headPrefix+id+"/", "", 1)
	if err != nil || len(kvs) == 0 { // a category without a stream has no events
		return err == nil, err
	}
	h, err := headIn(kvs[0])
	if err != nil {
		return false, err
	}
	slices, err := s.log.EachBounds(ctx, h.Partition)
	if err != nil {
		return false, err
	}
	if errors.Is(slices[0].Err, eventlog.ErrNoPartition) {
		return true, nil
	}
	return false, slices[0].Err
}

// sweepIDs removes ids that are older than limits.IDAge.
func (s *Streams) sweepIDs(ctx context.Context) error {
	var old []eventlog.KeyValue
	err := s.log.ListAll(ctx, idPrefix, func(kv eventlog.KeyValue) error {
		if kv.Age < s.cfg.limits.IDAge {
			return nil
		}
		if len(old) < sweepKeys && (len(old) == 0 || categoryIn(old[0].Key) == categoryIn(kv.Key)) { // of one category, so that an entry is on one shard
			old = append(old, kv)
			return nil
		}
		all := old
		old = []eventlog.KeyValue{kv}
		_, err := s.forget(ctx, all, nil)
		return err
	})
	if err == nil {
		_, err = s.forget(ctx, old, nil)
	}
	return err
}

// categoryIn returns the category in the key of an id.
func categoryIn(key string) string {
	id, _, _ := strings.Cut(strings.TrimPrefix(key, idPrefix), "/")
	return id
}

// forget removes keys, and with them the keys in others, if keys are as they were read; false if
// not: another process was first.
func (s *Streams) forget(ctx context.Context, keys []eventlog.KeyValue, others []string) (done bool, err error) {
	return s.forgetWith(ctx, eventlog.Entry{}, keys, others)
}

// forgetWith is forget with the checks and puts that the entry already has.
func (s *Streams) forgetWith(ctx context.Context, e eventlog.Entry, keys []eventlog.KeyValue, others []string) (done bool, err error) {
	if len(keys) == 0 {
		return true, nil
	}
	e.UsesReserve = true
	for _, kv := range keys {
		e.Checks = append(e.Checks, eventlog.Check{Key: kv.Key, Version: kv.Version})
		e.Puts = append(e.Puts, eventlog.Put{Key: kv.Key})
	}
	for _, key := range others {
		e.Puts = append(e.Puts, eventlog.Put{Key: key})
	}
	_, err = s.log.Append(ctx, e)
	if errors.Is(err, eventlog.ErrStale) {
		return false, nil
	}
	return err == nil, err
}

// sweepStream removes a stream's events below the first one that can be read, its unusable
// snapshots, and then the note, its key under gonePrefix. Each removal checks the note: a store
// that was rewound may have lost the deletion, and then the events are there again.
func (s *Streams) sweepStream(ctx context.Context, note eventlog.KeyValue) error {
	place := strings.TrimPrefix(note.Key, gonePrefix) + "/"
	h, err := headIn(note)
	if err != nil {
		return err
	}
	topicID, _, _ := strings.Cut(strings.TrimPrefix(note.Key, gonePrefix), "/")
	for _, left := range []struct {
		prefix, after string
		page          int
	}{
		{eventPrefix + place, "", int(min(pageStep(h), sweepKeys))},
		{snapshotPrefix + place, snapshotPrefix + place + digits(math.MaxInt64-max(h.First, h.Born+1)), sweepSnapshots},
	} {
		for {
			gone, err := s.log.List(ctx, left.prefix, left.after, left.page)
			if err != nil {
				return err
			}
			if left.after == "" {
				first := left.prefix + digits(h.First)
				gone = slices.DeleteFunc(gone, func(kv eventlog.KeyValue) bool { return kv.Key >= first })
			}
			if len(gone) == 0 {
				break
			}
			e := eventlog.Entry{Checks: []eventlog.Check{{Key: note.Key, Version: note.Version}}}
			var tagged []string
			if left.after == "" {
				tagged = tagKeysOf(gone)
				over, vanished, err := s.lastOf(ctx, topicID, tagged)
				if err != nil {
					return err
				}
				if gone = append(gone, over...); len(over) > 0 {
					e.Checks = append(e.Checks, eventlog.Check{Key: vanished.Key, Version: vanished.Version})
					e.Puts = append(e.Puts, eventlog.Put{Key: vanished.Key, Version: vanished.Version.Next(), Value: []byte("0")})
				}
			}
			if done, err := s.forgetWith(ctx, e, gone, tagged); !done {
				return err
			}
		}
	}
	_, err = s.forget(ctx, []eventlog.KeyValue{note}, nil)
	return err
}
