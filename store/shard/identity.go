package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
)

// ErrList: a list of shards is not that of the set: another order, a shard is missing, or one
// belongs to another set. Nothing was changed.
var ErrList = errors.New("the list of shards is not that of the set")

// Each shard has the key eventlog.ShardKey: which set it belongs to, and which of its shards it is.
// On shard 0 the key also says how many shards there are. A set is made in an order that a crash
// may end anywhere:
//
//  1. shard 0 gets its key, with 1 shard;
//  2. each new shard gets its key;
//  3. shard 0 is told how many there are.
//
// Steps 2 and 3 also add shards later. A shard whose key was put, and that shard 0 does not count
// yet, is empty.

// identify checks that the members are the shards of one set, in order, and makes or completes the
// set if it is new or has new shards. It returns how many shards share the keys with a rule
// ByFirst.
//
// A member whose shard does not answer is away then, if the set has it already. have is what was
// found.
func identify(ctx context.Context, members []*member) (have []found, homes int, err error) {
	for range enterMax {
		have, homes, err = tryIdentify(ctx, members)
		if !errors.Is(err, eventlog.ErrStale) { // ErrStale: another process did the same
			break
		}
	}
	return have, homes, err
}

// found is what a member has under ShardKey; version 0: nothing.
type found struct {
	eventlog.ShardMark
	version eventlog.Version
	away    error // why the shard does not answer; nil: it does
}

// has reports whether the key of shard 0 (f) says that the set has so many shards already.
func (f found) has(shards int) bool { return f.version > 0 && f.Shards >= shards }

// identities reads what the members have. Those that do not answer are away if the set has them
// already; otherwise that is an error.
func identities(ctx context.Context, members []*member) ([]found, error) {
	have := make([]found, len(members))
	errs := make([]error, len(members))
	read := func(i int) {
		within, cancel := context.WithTimeout(ctx, readPatience)
		defer cancel()
		if have[i], errs[i] = members[i].identity(within); errs[i] != nil && within.Err() != nil && ctx.Err() == nil {
			errs[i] = fmt.Errorf("%w: no answer within %v: %w", eventlog.ErrUnavailable, readPatience, errs[i])
		}
	}
	read(0) // first: it counts the shards that have their keys, and another process may be making the set
	var all errgroup.Group
	for i, m := range members {
		switch {
		case m.away != nil:
			have[i].away = m.away.why
		case i > 0:
			all.Go(func() error { read(i); return nil })
		}
	}
	_ = all.Wait()
	for i, m := range members {
		switch {
		case errs[i] == nil:
		case i > 0 && ctx.Err() == nil && isLoss(errs[i]) && have[0].has(len(members)):
			have[i].away = errs[i]
			m.isAway(errs[i], nil)
		default:
			return nil, fmt.Errorf("%v: %w", m, errs[i])
		}
	}
	return have, nil
}

func tryIdentify(ctx context.Context, members []*member) ([]found, int, error) {
	have, err := identities(ctx, members)
	if err != nil {
		return nil, 0, err
	}
	if wrong := check(members, have); wrong != nil {
		now, err := identities(ctx, members)
		if err == nil && !slices.EqualFunc(have, now, func(a, b found) bool { return a.version == b.version }) {
			err = eventlog.ErrStale // another process makes the set, between one answer and the next
		}
		return nil, 0, cmp.Or(err, wrong)
	}
	homes, err := complete(ctx, members, have)
	return have, homes, err
}

// complete makes the set, or completes it, if it is new or has new shards. In both cases every
// shard has answered.
func complete(ctx context.Context, members []*member, have []found) (int, error) {
	home := have[0]
	if home.has(len(members)) {
		return home.Homes, nil
	}
	if home.version == 0 {
		used, err := members[0].used(ctx)
		if err != nil {
			return 0, err
		}
		home.ShardMark = eventlog.ShardMark{Set: strings.ToLower(rand.Text()), Name: members[0].name, Shards: 1, Homes: len(members)}
		if used != "" {
			home.Homes = 1 // the keys that are there stay where they are
			if err := members[0].alone(ctx); err != nil {
				return 0, err
			}
		}
	}
	for i, m := range members[1:] {
		if have[i+1].version > 0 {
			continue
		}
		used, err := m.used(ctx)
		if err != nil {
			return 0, err
		}
		if used != "" {
			if now, err := m.identity(ctx); err != nil || now.version > 0 {
				return 0, errors.Join(err, eventlog.ErrStale) // another process makes the set
			}
			return 0, fmt.Errorf("%w: %v is not empty, and belongs to no set: it has %s. A shard that is added must be empty", ErrList, m, used)
		}
	}
	if home.version == 0 {
		var err error
		if home.version, err = members[0].mark(ctx, 0, home.ShardMark); err != nil {
			return 0, err
		}
	}
	for i, m := range members[1:] {
		if have[i+1].version == 0 {
			if _, err := m.mark(ctx, 0, eventlog.ShardMark{Set: home.Set, Number: m.number, Name: m.name}); err != nil {
				return 0, err
			}
		}
	}
	if home.Shards < len(members) {
		home.Shards = len(members)
		if _, err := members[0].mark(ctx, home.version, home.ShardMark); err != nil {
			return 0, err
		}
	}
	return home.Homes, nil
}

// check compares what the members say they are with their places in the list.
func check(members []*member, have []found) error {
	set, by := "", (*member)(nil)
	for i, h := range have {
		switch {
		case h.version == 0: // it has no key, or is away
		case set == "":
			set, by = h.Set, members[i]
		case h.Set != set:
			return fmt.Errorf("%w: %v belongs to the set %s, and %v to the set %s, as its shard %d", ErrList, by, set, members[i], h.Set, h.Number)
		}
	}
	if set == "" {
		return nil
	}
	known := max(have[0].Shards, have[0].Homes)
	for i, h := range have {
		switch {
		case h.version > 0 && h.Number != i:
			return fmt.Errorf("%w: %v is shard %d of the set %s, and the list has it in the place of shard %d: give the shards in their order, all of them, each once", ErrList, members[i], h.Number, set, i)
		case h.version > 0, h.away != nil:
		case i == 0:
			return fmt.Errorf("%w: %v is in the place of shard 0 and belongs to no set, but %v is shard %d of the set %s: shard 0 is missing in the list", ErrList, members[0], by, by.number, set)
		case i < have[0].Shards:
			return fmt.Errorf("%w: %v is in the place of shard %d of the set %s, and is not this shard: it belongs to no set. If the shard was lost, restore its backup", ErrList, members[i], i, set)
		case i+1 < len(have) && anyMarked(have[i+1:]):
			return fmt.Errorf("%w: %v is in the place of shard %d of the set %s and belongs to no set, but a shard after it does: shard %d is missing in the list", ErrList, members[i], i, set, i)
		}
	}
	if len(members) < known {
		return fmt.Errorf("%w: the set %s has %d shards, and the list has %d: give all of them, in their order", ErrList, set, known, len(members))
	}
	return nil
}

func anyMarked(have []found) bool {
	for _, h := range have {
		if h.version > 0 {
			return true
		}
	}
	return false
}

func (m *member) identity(ctx context.Context) (found, error) {
	return identity(ctx, m.store, m.number)
}

// identity reads ShardKey of a store in the place of a shard. It refuses a store that is closed,
// except in the place of shard 0: there ClosedKey is about the whole set.
func identity(ctx context.Context, store eventlog.Store, number int) (found, error) {
	if number > 0 {
		if closed, version, err := eventlog.FindClosed(ctx, store); err != nil || version > 0 {
			if err == nil {
				err = fmt.Errorf("%w: %s", eventlog.ErrStoreClosed, closed.Why)
			}
			return found{}, err
		}
	}
	kv, err := eventlog.FindShardMark(ctx, store)
	if err != nil || kv.Version == 0 {
		return found{}, err
	}
	mark, err := eventlog.ParseShardMark(kv)
	return found{ShardMark: mark, version: kv.Version}, err
}

// used says what a store holds, for an error; "": nothing.
func (m *member) used(ctx context.Context) (string, error) {
	keys, err := m.store.List(ctx, "", "", 1)
	if err != nil {
		return "", fmt.Errorf("%v: %w", m, err)
	}
	if len(keys) > 0 {
		return fmt.Sprintf("the key %q", keys[0].Key), nil
	}
	partitions, _, err := m.store.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return "", fmt.Errorf("%v: %w", m, err)
	}
	if len(partitions) > 0 {
		return fmt.Sprintf("%d partitions", len(partitions)), nil
	}
	return "", nil
}

// alone refuses a store with partitions whose numbers name other shards: nobody would find them
// there.
func (m *member) alone(ctx context.Context) error {
	partitions, _, err := m.store.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return fmt.Errorf("%v: %w", m, err)
	}
	for _, b := range partitions {
		if b.Partition.Shard() != 0 {
			return fmt.Errorf("%w: %v cannot become shard 0 of a new set: it is a copy of a set, and its partition %d has a number of shard %d. Use it as a single store, or copy its events with a program", ErrList, m, b.Partition, b.Partition.Shard())
		}
	}
	return nil
}

// mark puts ShardKey. ErrStale: it is no longer at the version before, or the answer was lost.
func (m *member) mark(ctx context.Context, before eventlog.Version, mark eventlog.ShardMark) (eventlog.Version, error) {
	value, err := json.Marshal(mark)
	if err != nil {
		return 0, fmt.Errorf("encode %+v: %w", mark, err)
	}
	err = m.commitOne(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: eventlog.ShardKey, Version: before}}, Puts: []eventlog.Put{{Key: eventlog.ShardKey, Version: before + 1, Value: value}},
	})
	if errors.Is(err, eventlog.ErrUnsure) {
		err = eventlog.ErrStale // the next try finds out
	}
	if err != nil {
		return 0, fmt.Errorf("mark %v as part of a set: %w", m, err)
	}
	return before + 1, nil
}

// stillWhole refuses to go on with fewer shards than the set has: another process was started with
// more.
func (s *Set) stillWhole(ctx context.Context) error {
	at, err := s.home().identity(ctx)
	if err != nil {
		return err
	}
	if at.version == 0 {
		return fmt.Errorf("%w: it belongs to no set any more", ErrList)
	}
	if at.Shards > len(s.members) {
		return fmt.Errorf("%w: the set %s has %d shards now, and this process was started with %d: start it again with the whole list", ErrList, at.Set, at.Shards, len(s.members))
	}
	return nil
}
