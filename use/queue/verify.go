package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/claims"
)

// Verify checks what the store has of queues:
//
//   - Each state of a partition, of its dead letters, and of a slot of delayed messages has each
//     message in one state: from its floor to the last message that was claimed or skipped there is
//     no gap and no overlap, and nothing is beyond the end of the partition. Each partition of a
//     queue has its state under one key.
//   - Each unique key names a message that is not done, and not past the end of its partition.
//   - Each schedule has its message. Saved places of delayed messages are within their slots.
//
// The keys of queues that were deleted or purged are removed later, and are not checked.
func Verify() verify.Check {
	return verify.Check{Name: "queues", Run: func(ctx context.Context, x *verify.Exam) error {
		e := &examination{x: x}
		if _, err := x.First(func(v *verify.View) (err error) { // the definitions for the first looks
			e.known, err = readDefinitions(ctx, v)
			return err
		}); err != nil {
			return err
		}
		each := func(look func(context.Context, *verify.View, string) error) func(context.Context, []eventlog.KeyValue) error {
			return func(ctx context.Context, page []eventlog.KeyValue) error {
				for _, kv := range page {
					if err := e.judge(ctx, func(v *verify.View) error { return look(ctx, v, kv.Key) }); err != nil {
						return err
					}
				}
				return nil
			}
		}
		for _, part := range []struct {
			prefix string
			page   int
			check  func(context.Context, []eventlog.KeyValue) error
		}{
			{defPrefix, lookPage, each(e.lookAtDefinition)}, {statePrefix, statesPage, each(e.lookAtState)}, {deadPrefix, statesPage, each(e.lookAtState)},
			{wheelStates, statesPage, each(e.lookAtState)}, {uniquePrefix, lookPage, e.uniques}, {schedulePrefix, lookPage, each(e.lookAtSchedule)}, {placesPrefix, lookPage, each(e.lookAtPlaces)},
		} {
			if err := x.KeysPaged(ctx, part.prefix, part.page, func(page []eventlog.KeyValue) error { return part.check(ctx, page) }); err != nil {
				return err
			}
		}
		return nil
	}}
}

// lookPage is how many keys are read with a call, statesPage how many states, which may be large.
const lookPage, statesPage = 1000, 32

const (
	restoreQueue = "restore the key from a backup; without it the queue hands out again what it has from the floors on"
	freeUnique   = "nothing has to be done if the queue had its unique setting off for a time: the next message with this unique key takes it. Otherwise see whether a message was handled that is not done"
)

type examination struct {
	x     *verify.Exam
	known []definition // the definitions as they were at the beginning
	first bool         // a first look is on its way: it uses known, and does not read the definitions
}

// judge looks first by the definitions in known. If that look finds something suspicious, it is
// confirmed by looks that read the definitions again.
func (e *examination) judge(ctx context.Context, look func(v *verify.View) error) error {
	e.first = true
	suspicious, err := e.x.First(look)
	if e.first = false; err != nil || !suspicious {
		return err
	}
	return e.x.Confirm(ctx, look)
}

func (e *examination) definitions(ctx context.Context, v *verify.View) ([]definition, error) {
	if e.first {
		return e.known, nil
	}
	return readDefinitions(ctx, v)
}

// readDefinitions reads what queues there are.
func readDefinitions(ctx context.Context, v *verify.View) (all []definition, err error) {
	for after := ""; ; {
		page, err := v.List(ctx, defPrefix, after, lookPage)
		if err != nil {
			return nil, err
		}
		for _, kv := range page {
			if d, err := parseDefinition(kv); err == nil {
				all = append(all, d)
			}
			after = kv.Key
		}
		if len(page) < lookPage {
			return all, nil
		}
	}
}

// ofID returns the queue with an id, which is the second-last part of a key; earlier: the queue had
// this id before its last purge.
func (e *examination) ofID(ctx context.Context, v *verify.View, key string) (d definition, earlier, is bool, err error) {
	parts := strings.Split(key, "/")
	id := parts[len(parts)-2]
	all, err := e.definitions(ctx, v)
	for _, d := range all {
		if d.id == id || d.earlier() == id || d.schedules == id {
			return d, d.id != id, true, err
		}
	}
	return d, false, false, err
}

func (e *examination) lookAtDefinition(ctx context.Context, v *verify.View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	if _, err := parseDefinition(kvs[0]); err != nil {
		v.Find(verify.AtKey(key), "restore the key from a backup, or delete the queue and make it anew", "%v", err)
	}
	return nil
}

// lookAtState checks a state: of a queue's partitions, of its dead letters, or of a slot.
func (e *examination) lookAtState(ctx context.Context, v *verify.View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	st, err := claims.Decode(kvs[0].Value)
	if err != nil {
		v.Find(verify.AtKey(key), restoreQueue, "it is no state of messages: %v", err)
		return nil
	}
	for i := range st.Parts {
		p := &st.Parts[i]
		b, there, err := v.Bounds(ctx, p.Partition)
		if err != nil {
			return err
		}
		if !there { // the topic was deleted
			continue
		}
		if why := p.Verify(b.Next); why != "" {
			v.Find(verify.AtKey(key), restoreQueue, "%s", why)
		}
	}
	if strings.HasPrefix(key, statePrefix) {
		return e.lookAtHome(ctx, v, key, st)
	}
	return nil
}

// lookAtHome sees whether the state of a queue's partition is under the key that the queue reads.
func (e *examination) lookAtHome(ctx context.Context, v *verify.View, key string, st *claims.State) error {
	d, earlier, is, err := e.ofID(ctx, v, key)
	if err != nil || !is || earlier {
		return err
	}
	for i := range st.Parts {
		if want := d.keyOf(st.Parts[i].Partition); want != key {
			v.Find(verify.AtKey(key), "the queue does not read this key: delete it", "it has the state of partition %d of queue %q, whose state is under %s", st.Parts[i].Partition, d.name, want)
		}
	}
	return nil
}

// uniques checks a page of unique keys: each state that they need is read once.
func (e *examination) uniques(ctx context.Context, page []eventlog.KeyValue) error {
	states := make(map[string]*claims.State)
	stateAt := make([]string, len(page))
	var ps []eventlog.Partition
	e.first = true
	defer func() { e.first = false }()
	for i, kv := range page {
		if held, err := parseHolder(kv); err == nil {
			if _, err := e.x.First(func(v *verify.View) (err error) {
				_, stateAt[i], err = e.livesAt(ctx, v, kv.Key, held)
				return err
			}); err != nil {
				return err
			}
			if stateAt[i] != "" {
				states[stateAt[i]] = nil
				ps = append(ps, held.place.Partition)
			}
		}
	}
	e.first = false
	err := e.x.GetEach(ctx, slices.Sorted(maps.Keys(states)), func(kv eventlog.KeyValue) error {
		if st, err := claims.Decode(kv.Value); kv.Version > 0 && err == nil {
			states[kv.Key] = st
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.Sort(ps)
	bounds, err := e.x.Bounds(ctx, slices.Compact(ps)...)
	if err != nil {
		return err
	}
	for i, kv := range page {
		held, err := parseHolder(kv)
		if err == nil {
			b, there := bounds[held.place.Partition]
			if stateAt[i] == "" || !there || held.overIn(states[stateAt[i]], b) == "" {
				continue
			}
		}
		if err := e.x.Confirm(ctx, func(v *verify.View) error { return e.lookAtUnique(ctx, v, kv.Key) }); err != nil {
			return err
		}
	}
	return nil
}

// livesAt returns the key of the state that knows the message which has a unique key; "": none
// does, or the key is not checked.
func (e *examination) livesAt(ctx context.Context, v *verify.View, key string, held holder) (d definition, stateAt string, err error) {
	d, earlier, is, err := e.ofID(ctx, v, key)
	if err != nil || !is || earlier || held.lost || !d.settings.Unique {
		return d, "", err
	}
	topics := e.x.Topics
	if !e.first {
		now, err := v.Topics(ctx)
		if err != nil {
			return d, "", err
		}
		topics = slices.Collect(maps.Values(now))
	}
	for _, t := range topics {
		switch {
		case !slices.Contains(t.Partitions, held.place.Partition):
		case t.Name == wheelTopic:
			stateAt = wheelStateKey(held.place.Partition)
		case d.reads(t.ID):
			stateAt = d.keyOf(held.place.Partition)
		}
	}
	return d, stateAt, nil
}

// overIn returns why a message that has a unique key is not in its queue, by the state that knows
// it, and by bounds that were read after the state; "": it may be there, or was trimmed, which is
// no fault because the key is free then. st is nil while nobody has claimed anything.
func (h holder) overIn(st *claims.State, b eventlog.Bounds) string {
	switch at := h.place.Offset; {
	case at < b.First:
		return ""
	case at >= b.Next:
		return fmt.Sprintf("its partition ends at %d", b.Next)
	case st != nil:
		if p, is := st.Find(h.place.Partition); is && at < p.Next {
			if r, there := p.At(at); !there || r.Fate == claims.Done {
				return "that message is done"
			}
		}
	}
	return ""
}

// lookAtUnique sees whether the message that has a unique key is in its queue, and not done.
func (e *examination) lookAtUnique(ctx context.Context, v *verify.View, key string) error {
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	held, err := parseHolder(kvs[0])
	if err != nil {
		v.Find(verify.AtKey(key), "delete the key: messages with its unique key cannot be enqueued; restore it from a backup if the message is still to be handled", "%v", err)
		return nil
	}
	d, stateAt, err := e.livesAt(ctx, v, key, held)
	if err != nil || stateAt == "" {
		return err
	}
	states, err := v.Get(ctx, stateAt)
	if err != nil {
		return err
	}
	b, there, err := v.Bounds(ctx, held.place.Partition)
	if err != nil || !there {
		return err
	}
	var st *claims.State
	if states[0].Version > 0 {
		if st, err = claims.Decode(states[0].Value); err != nil {
			return nil // that is a finding about the state
		}
	}
	if why := held.overIn(st, b); why != "" {
		v.Find(verify.AtKey(key), freeUnique, "the unique key of queue %q names message %s, but %s", d.name, held.place, why)
	}
	return nil
}

// lookAtSchedule sees whether a schedule can be read, and has its message.
func (e *examination) lookAtSchedule(ctx context.Context, v *verify.View, key string) error {
	messageKey := messagePrefix + strings.TrimPrefix(key, schedulePrefix)
	kvs, err := v.Get(ctx, key, messageKey)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	const again = "delete the schedule, and make it anew"
	if _, err := parseSchedule(kvs[0]); err != nil {
		v.Find(verify.AtKey(key), again, "%v", err)
	}
	if kvs[1].Version == 0 {
		_, _, is, err := e.ofID(ctx, v, key)
		if err == nil && is { // without a definition, the keys of the queue are being removed
			v.Find(verify.AtKey(messageKey), again, "the message of a schedule is missing")
		}
		return err
	}
	if _, err := parseMessage(kvs[1]); err != nil {
		v.Find(verify.AtKey(messageKey), again, "%v", err)
	}
	return nil
}

// lookAtPlaces sees whether saved places of delayed messages are within their slot.
func (e *examination) lookAtPlaces(ctx context.Context, v *verify.View, key string) error {
	const forget = "delete the key: it only saves reading the messages"
	kvs, err := v.Get(ctx, key)
	if err != nil || kvs[0].Version == 0 {
		return err
	}
	p, n, ok := parseBlockKey(key)
	if !ok {
		v.Find(verify.AtKey(key), forget, "it names no block of a slot")
		return nil
	}
	all, ok := parseBlock(p, n, kvs[0].Value)
	if !ok {
		v.Find(verify.AtKey(key), forget, "it cannot be read, or has messages of other blocks")
		return nil
	}
	b, there, err := v.Bounds(ctx, p)
	if err != nil || !there {
		return err
	}
	for _, m := range all {
		if m.at >= b.Next {
			v.Find(verify.AtKey(key), forget+", which makes messages count that do not exist", "it has a message at offset %d of partition %d, which ends at %d", m.at, p, b.Next)
			return nil
		}
	}
	return nil
}
