package group

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
)

const (
	restoreKey  = "delete the group, or restore the key from a backup"
	resetOffset = "reset the group's offset of this partition: weir group reset; it would pass over the events that come until the log has reached it"
)

// Verify checks what the store has of groups: their states, the offsets that they committed, and
// where they began. Offsets of topics that were deleted are left until they expire.
func Verify() verify.Check {
	return verify.Check{Name: "groups", Run: func(ctx context.Context, x *verify.Exam) error {
		e := &examination{x: x, topics: make(map[eventlog.TopicID]eventlog.Topic)}
		for _, t := range x.Topics {
			e.topics[t.ID] = t
		}
		for prefix, check := range map[string]func(context.Context, []eventlog.KeyValue) error{
			statePrefix: e.readable(unreadable, "it is no state of a group"), configPrefix: e.readable(unreadableConfig, "it has no settings of a group"), offsetPrefix: e.offsets, startPrefix: e.offsets,
		} {
			if err := x.Keys(ctx, prefix, func(page []eventlog.KeyValue) error { return check(ctx, page) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

type examination struct {
	x      *verify.Exam
	topics map[eventlog.TopicID]eventlog.Topic // at the beginning
}

// readable finds keys whose values cannot be read.
func (e *examination) readable(unreadable func(eventlog.KeyValue) error, what string) func(context.Context, []eventlog.KeyValue) error {
	return func(ctx context.Context, page []eventlog.KeyValue) error { return e.read(ctx, page, unreadable, what) }
}

func (e *examination) read(ctx context.Context, page []eventlog.KeyValue, unreadable func(eventlog.KeyValue) error, what string) error {
	for _, kv := range page {
		if unreadable(kv) == nil {
			continue
		}
		err := e.x.Confirm(ctx, func(v *verify.View) error {
			now, err := v.Get(ctx, kv.Key)
			if err == nil && now[0].Version > 0 {
				if wrong := unreadable(now[0]); wrong != nil {
					v.Find(verify.AtKey(kv.Key), restoreKey, what+": %v", wrong)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func unreadableConfig(kv eventlog.KeyValue) error {
	_, err := parseSettings(kv)
	return err
}

func unreadable(kv eventlog.KeyValue) error {
	if _, err := nameOfStateKey(kv.Key); err != nil {
		return err
	}
	var s storedState
	return json.Unmarshal(kv.Value, &s)
}

// committedAt are the offsets that a key has, by the numbers of partitions.
func committedAt(kv eventlog.KeyValue) (id eventlog.TopicID, at map[int32]eventlog.Offset, err error) {
	parse := parseOffset
	if len(kv.Key) > len(startPrefix) && kv.Key[:len(startPrefix)] == startPrefix {
		parse = parseStart
	}
	_, o, err := parse(kv)
	if err != nil {
		return id, nil, err
	}
	if o.Partition != allPartitions {
		return o.Topic, map[int32]eventlog.Offset{o.Partition: o.Offset}, nil
	}
	at = make(map[int32]eventlog.Offset)
	for n := range o.ends {
		if c, is := o.at(int32(n)); is {
			at[int32(n)] = c.Offset
		}
	}
	return o.Topic, at, nil
}

// offsets compares committed offsets with the ends of their partitions, which are read later.
func (e *examination) offsets(ctx context.Context, page []eventlog.KeyValue) error {
	var ps []eventlog.Partition
	for _, kv := range page {
		id, at, err := committedAt(kv)
		if err != nil {
			continue
		}
		for n := range at {
			if t := e.topics[id]; n >= 0 && int(n) < len(t.Partitions) {
				ps = append(ps, t.Partitions[n])
			}
		}
	}
	bounds, err := e.x.Bounds(ctx, ps...)
	if err != nil {
		return err
	}
	for _, kv := range page {
		if e.plausible(kv, bounds) {
			continue
		}
		if err := e.x.Confirm(ctx, func(v *verify.View) error { return lookAtOffset(ctx, v, kv.Key) }); err != nil {
			return err
		}
	}
	return nil
}

// plausible reports whether a first look finds nothing wrong.
func (e *examination) plausible(kv eventlog.KeyValue, bounds map[eventlog.Partition]eventlog.Bounds) bool {
	id, at, err := committedAt(kv)
	if err != nil {
		return false
	}
	t, known := e.topics[id]
	for n, offset := range at {
		if known && (n < 0 || int(n) >= len(t.Partitions) || offset < 0 || offset > bounds[t.Partitions[n]].Next) {
			return false
		}
	}
	return true
}

func lookAtOffset(ctx context.Context, v *verify.View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	id, at, err := committedAt(kvs[0])
	if err != nil {
		v.Find(verify.AtKey(key), restoreKey, "it is no committed offset: %v", err)
		return nil
	}
	topics, err := v.Topics(ctx)
	if err != nil {
		return err
	}
	t, known := topics[id]
	for n, offset := range at {
		switch {
		case !known: // it was deleted: the offset expires
		case n < 0 || int(n) >= len(t.Partitions):
			v.Find(verify.AtKey(key), resetOffset, "it is about partition %d of topic %q, which has %d", n, t.Name, len(t.Partitions))
		default:
			b, there, err := v.Bounds(ctx, t.Partitions[n])
			if err != nil {
				return err
			}
			if there && (offset < 0 || offset > b.Next) {
				v.Find(verify.AtKey(key), resetOffset, "%s", fmt.Sprintf("the group has committed offset %d of topic %q, partition %d, which ends at %d", offset, t.Name, n, b.Next))
			}
		}
	}
	return nil
}

// SQLPosition is an offset that a group has committed with SQL, in a table beside the keys.
type SQLPosition struct {
	Group string
	TopicPartition
	Offset eventlog.Offset
}

// VerifyPositions checks that no position is beyond the end of its partition. read calls visit with
// pages of all positions that are committed, or not at all if the store has no such table. Those of
// topics that were deleted are left out: they are deleted later.
func VerifyPositions(table string, read func(ctx context.Context, store eventlog.Store, visit func([]SQLPosition) error) error) verify.Check {
	return verify.Check{Name: "positions", Run: func(ctx context.Context, x *verify.Exam) error {
		topics := make(map[eventlog.TopicID]eventlog.Topic)
		for _, t := range x.Topics {
			topics[t.ID] = t
		}
		return read(ctx, x.Store(), func(page []SQLPosition) error {
			var ps []eventlog.Partition
			of := make(map[eventlog.Partition][]SQLPosition)
			for _, at := range page {
				if t := topics[at.Topic]; at.Partition >= 0 && int(at.Partition) < len(t.Partitions) {
					p := t.Partitions[at.Partition]
					ps, of[p] = append(ps, p), append(of[p], at)
				}
			}
			bounds, err := x.Bounds(ctx, ps...) // after the positions: ends only grow
			if err != nil {
				return err
			}
			for p, b := range bounds {
				for _, at := range of[p] {
					if at.Offset >= 0 && at.Offset <= b.Next {
						continue
					}
					err := x.Confirm(ctx, func(v *verify.View) error {
						b, there, err := v.Bounds(ctx, p)
						if err == nil && there && (at.Offset < 0 || at.Offset > b.Next) {
							v.Find(x.Place(p, at.Offset), "correct the row with SQL: the group would pass over the events that come until the log has reached it",
								"in %s the group %q is at offset %d, but the partition ends at %d", table, at.Group, at.Offset, b.Next)
						}
						return err
					})
					if err != nil {
						return err
					}
				}
			}
			return nil
		})
	}}
}
