package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// A partition is on the shard that its number names, unless it was moved. It keeps this number for
// everybody but its shard: a store never gets a number twice, so each shard that it moves to knows
// it by a new one (Placement.ID). Shard 0 keeps a key for each partition that was moved or moves;
// every process has all of them in memory, its table. A process reads the table when it enters an
// epoch, and whoever changes where a partition is begins an epoch. Each shard refuses the commits
// of earlier epochs by itself, so no process commits by an old table.
//
//	shard/placed/<partition>   on shard 0: an eventlog.Placement. Whoever moves partitions first
//	                           deletes those of deleted topics (Unplace): there are at most as many
//	                           of these keys as partitions that were moved and existed at the last
//	                           move
//	shard/guard/<partition>    on a shard from or to which the partition moves: whoever raises its
//	                           version last is the one that moves it (store/storecopy)
//
// What moves partitions is store/storecopy. Why it is so:
// docs/decisions/a-partition-moves-with-its-number.md.
const (
	ownPrefix    = "shard/" // of keys that are about the set itself: nobody else sees them
	placedPrefix = ownPrefix + "placed/"
	guardPrefix  = ownPrefix + "guard/"
)

// GuardKey is the key on a shard that says who moves a partition from or to it.
func (s *Set) GuardKey(p eventlog.Partition) string {
	return guardPrefix + strconv.FormatInt(int64(p), 10)
}

func placedKey(p eventlog.Partition) string { return placedPrefix + strconv.FormatInt(int64(p), 10) }

// table is a snapshot of the placements. It is never changed, only replaced.
type table struct {
	placed eventlog.Placements
	back   map[located]eventlog.Partition
}

// located is a partition's number on a shard.
type located struct {
	shard int
	id    eventlog.Partition
}

// id returns a partition's number on its shard.
func (t *table) id(p eventlog.Partition) eventlog.Partition {
	if at, is := t.placed[p]; is {
		return at.ID
	}
	return p
}

// with returns the shard where a partition is.
func (t *table) with(p eventlog.Partition) int {
	if at, is := t.placed[p]; is {
		return at.Shard
	}
	return p.Shard()
}

// refusal returns why a partition cannot be changed now; nil: it can.
func (t *table) refusal(p eventlog.Partition) error {
	at := t.placed[p]
	if at.Move != eventlog.MoveClosed {
		return nil
	}
	return fmt.Errorf("%w: partition %d moves from shard %d to shard %d now: try again in a moment. Nothing happened", eventlog.ErrUnavailable, p, at.Shard, at.Other)
}

// readTable reads the table from shard 0.
func readTable(ctx context.Context, home eventlog.Store) (*table, error) {
	const page = 1000
	t := &table{placed: make(eventlog.Placements), back: make(map[located]eventlog.Partition)}
	for after := ""; ; {
		kvs, err := home.List(ctx, placedPrefix, after, page)
		if err != nil {
			return nil, err
		}
		for _, kv := range kvs {
			n, err := strconv.ParseInt(strings.TrimPrefix(kv.Key, placedPrefix), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("key %q on shard 0: %w", kv.Key, err)
			}
			at, err := parsePlacement(kv)
			if err != nil {
				return nil, err
			}
			t.placed[eventlog.Partition(n)], t.back[located{at.Shard, at.ID}] = at, eventlog.Partition(n)
			after = kv.Key
		}
		if len(kvs) < page {
			return t, nil
		}
	}
}

func parsePlacement(kv eventlog.KeyValue) (at eventlog.Placement, err error) {
	if err := json.Unmarshal(kv.Value, &at); err != nil {
		return at, fmt.Errorf("key %s on shard 0 holds %.100q: %w", kv.Key, kv.Value, err)
	}
	at.Version = kv.Version
	return at, nil
}

// ShardWith implements eventlog.Sharded.
func (s *Set) ShardWith(p eventlog.Partition) int { return s.table.Load().with(p) }

// Refusal implements eventlog.Sharded.
func (s *Set) Refusal(p eventlog.Partition) error { return s.table.Load().refusal(p) }

// owned returns the bounds of partitions that are on the shard: it may also have what is left of
// partitions that were moved away, and incomplete copies.
func (t *table) owned(m *member, bounds []eventlog.Bounds) (own []eventlog.Bounds) {
	for _, b := range bounds {
		p, moved := t.back[located{m.number, b.Partition}]
		if _, placed := t.placed[b.Partition]; !moved && !placed && b.Partition.Shard() == m.number {
			p, moved = b.Partition, true
		}
		if moved {
			b.Partition = p
			own = append(own, b)
		}
	}
	return own
}

// asOf returns the error of a read that found its shards by the table before. If there is a newer
// table, the read may have had to ask other shards: ErrRewound makes the caller read again.
func (s *Set) asOf(before *table, err error) error {
	if err == nil && s.table.Load() != before {
		return eventlog.ErrRewound
	}
	return err
}

// ShardName names a shard for people.
func (s *Set) ShardName(shard int) string { return s.members[shard].String() }

// Placements returns the placement of every partition that was moved or moves, as shard 0 has it
// now.
func (s *Set) Placements(ctx context.Context) (eventlog.Placements, error) {
	var err error
	for range placeTries {
		if _, _, err = s.Changes(ctx, eventlog.Mark{}); err != nil {
			break
		}
		var t *table
		if t, err = readTable(ctx, s.home().store); err == nil {
			return t.placed, nil
		}
		if !errors.Is(err, eventlog.ErrRewound) { // ErrRewound: an epoch began meanwhile
			break
		}
	}
	return nil, fmt.Errorf("read where partitions are: %w", err)
}

// placeTries bounds how often Place and Placements begin anew because an answer was lost or an
// epoch began.
const placeTries = 16

// Place changes the placements of partitions, all in one entry. It returns the new placements in
// the order of changes: changes[i].To with its version. A change is left out if somebody else has
// changed the placement of its partition: the version is 0 then, and the other changes are made.
//
// If a change alters where a partition is, or whether changes of it are refused, Place begins a
// leader epoch, one for all changes. When Place returns without an error, no process commits to the
// partitions by the earlier placements any more. It needs every shard. No log may use this Set
// value.
func (s *Set) Place(ctx context.Context, changes []eventlog.Placing) ([]eventlog.Placement, error) {
	next := make([]eventlog.Placement, len(changes))
	for i, c := range changes {
		next[i] = c.To
		next[i].Version = c.From.Version.Next()
	}
	var last error
	for range placeTries {
		bounds, mark, err := s.Changes(ctx, eventlog.Mark{})
		if err == nil {
			err = s.everyShardIn()
		}
		if err != nil {
			return nil, fmt.Errorf("change where partitions are: %w", err)
		}
		entry, made, err := s.placing(ctx, changes, next, mark, bounds)
		if err == nil && len(entry.Puts) == 0 {
			return made, nil // it happened, and Changes has told every shard of the epoch
		}
		if err == nil {
			err = s.home().commitOne(ctx, entry)
		}
		if err != nil && !errors.Is(err, eventlog.ErrRewound) && !errors.Is(err, eventlog.ErrStale) && !errors.Is(err, eventlog.ErrUnsure) {
			return nil, fmt.Errorf("change where partitions are: %w", err)
		}
		last = err
		// The next round finds out whether it happened, and tells every shard of the epoch.
	}
	return nil, fmt.Errorf("change where partitions are: %w: epochs began, or answers were lost, %d times meanwhile: %w", eventlog.ErrUnavailable, placeTries, last)
}

// Unplace deletes the placements of partitions whose topics were deleted. It leaves out those that
// move, and those of which a shard still has something: without the placement, what is left would
// be taken for a partition. No epoch begins: the partitions are nowhere, by the earlier table and
// by the new one. It costs a call of each shard that had some, and two of shard 0.
func (s *Set) Unplace(ctx context.Context, deleted []eventlog.Partition) error {
	if len(deleted) == 0 {
		return nil
	}
	now, err := readTable(ctx, s.home().store)
	if err != nil {
		return fmt.Errorf("forget where deleted partitions were: %w", err)
	}
	gone := make(map[eventlog.Partition]eventlog.Version)
	spans := make([][]eventlog.Span, len(s.members)) // by shard: what it may have, by its own numbers
	whose := make([][]eventlog.Partition, len(s.members))
	for _, p := range deleted {
		at, is := now.placed[p]
		if !is || at.Move != "" {
			continue
		}
		gone[p] = at.Version
		for _, on := range []located{{p.Shard(), p}, {at.Shard, at.ID}} {
			spans[on.shard] = append(spans[on.shard], eventlog.Span{Partition: on.id})
			whose[on.shard] = append(whose[on.shard], p)
		}
	}
	for n, m := range s.members {
		if len(spans[n]) == 0 {
			continue
		}
		held, err := m.store.Read(ctx, spans[n], 0)
		if err != nil {
			return fmt.Errorf("forget where deleted partitions were: %v: %w", m, err)
		}
		for i, h := range held {
			if !errors.Is(h.Err, eventlog.ErrNoPartition) {
				delete(gone, whose[n][i])
			}
		}
	}
	entry := eventlog.Entry{UsesReserve: true}
	for p, version := range gone {
		entry.Checks = append(entry.Checks, eventlog.Check{Key: placedKey(p), Version: version})
		entry.Puts = append(entry.Puts, eventlog.Put{Key: placedKey(p)})
	}
	if len(entry.Puts) == 0 {
		return nil
	}
	if err := s.home().commitOne(ctx, entry); err != nil && !errors.Is(err, eventlog.ErrStale) { // ErrStale: another process does the same
		return fmt.Errorf("forget where deleted partitions were: %w", err)
	}
	return nil
}

// placing returns the entry of those changes that are not made yet and can be made. made has the
// new placements of the changes that are made or can be made; those of the others are zero.
func (s *Set) placing(ctx context.Context, changes []eventlog.Placing, next []eventlog.Placement, mark eventlog.Mark, bounds []eventlog.Bounds) (entry eventlog.Entry, made []eventlog.Placement, err error) {
	now, err := readTable(ctx, s.home().store)
	if err != nil {
		return entry, nil, err
	}
	entry.UsesReserve = true
	made = make([]eventlog.Placement, len(changes))
	closes := func(at eventlog.Placement) bool { return at.Move == eventlog.MoveClosed }
	announced := false
	for i, c := range changes {
		switch now.placed[c.Partition].Version {
		case next[i].Version:
			made[i] = next[i]
		case c.From.Version:
			value, err := json.Marshal(next[i])
			if err != nil {
				panic(fmt.Sprintf("cannot encode %+v as JSON: %v", next[i], err)) // numbers and strings
			}
			key := placedKey(c.Partition)
			entry.Checks = append(entry.Checks, eventlog.Check{Key: key, Version: c.From.Version})
			entry.Puts = append(entry.Puts, eventlog.Put{Key: key, Version: next[i].Version, Value: value})
			announced = announced || c.From.Shard != c.To.Shard || closes(c.From) || closes(c.To)
			made[i] = next[i]
		}
	}
	if !announced {
		return entry, made, nil
	}
	kv, err := eventlog.Get(ctx, s.home().store, eventlog.EpochKey)
	if err != nil {
		return entry, nil, err
	}
	if kv.Version != mark.Incarnation.Epoch {
		return entry, nil, eventlog.ErrRewound
	}
	check, begins, err := eventlog.PlannedEpoch(kv, mark.Incarnation, bounds, s.Intact)
	entry.Checks, entry.Puts = append(entry.Checks, check), append(entry.Puts, begins)
	return entry, made, err
}

// everyShardIn returns an error unless every shard is known to be in the epoch of shard 0.
func (s *Set) everyShardIn() error {
	epoch := s.home().in().Incarnation.Epoch
	for _, m := range s.members {
		err := m.missing()
		if at := m.in().Incarnation.Epoch; err == nil && at != epoch {
			err = fmt.Errorf("%v is in epoch %d, and shard 0 in epoch %d", m, at-1, epoch-1)
		}
		if err != nil {
			return fmt.Errorf("%w: partitions are moved only while every shard answers: %w", eventlog.ErrUnavailable, err)
		}
	}
	return nil
}
