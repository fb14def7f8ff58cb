package queue

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// removeGone removes from the wheel the messages of all purged and deleted queues that have a note.
// Nobody needs them, and they might be due in a hundred years. It rewrites only the batches at and
// after their records, about a MiB of batches in each entry, and rests after each entry for as long
// as the entry took.
//
// Any process may do this at any time, also several, or one that stops half way: no entry changes
// what becomes of a message of another queue. No message with a noted id is added meanwhile:
// whoever delays one checks the definition of its queue, and ids are never reused.
func (d *delayed) removeGone(ctx context.Context) error {
	select {
	case d.removing <- struct{}{}:
		defer func() { <-d.removing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	qs := d.owner
	same := qs.sameEpoch()
	changed := qs.log.IncarnationChanged()
	topic, err := qs.log.Topic(ctx, wheelTopic)
	if errors.Is(err, eventlog.ErrUnknownTopic) {
		return nil
	}
	if err != nil {
		return err
	}
	slots, err := qs.log.Bounds(ctx, topic.Partitions...)
	if err != nil {
		return err
	}
	ids := make(map[string]bool)
	err = qs.log.ListAll(ctx, gonePrefix, func(kv eventlog.KeyValue) error {
		ids[strings.TrimPrefix(kv.Key, gonePrefix)] = true
		return nil
	})
	if err != nil {
		return err
	}
	isGone := func(to string) bool {
		_, id, _ := strings.Cut(to, "/")
		return ids[id]
	}
	err = d.catchUp(ctx)
	all := errors.Is(err, errManyDelayed) // then it is not known where the messages are
	if err != nil && !all {
		return err
	}
	r := removal{d: d, same: same, changed: changed, topic: topic, everywhere: all, isGone: isGone}
	for _, slot := range slots {
		if b := slot.Bounds; slot.Err == nil && b.First < b.Next {
			if err := r.fromSlot(ctx, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// removal is one run of removeGone.
type removal struct {
	d          *delayed
	same       eventlog.Check  // what sameEpoch returned, before it was known which queues are gone
	changed    <-chan struct{} // closed when the store may have been rewound since the check same was made
	topic      eventlog.Topic  // the wheel's topic
	everywhere bool            // it is not known where the messages are: every slot is searched as a whole
	isGone     func(to string) bool
}

// fromSlot removes messages from a slot. Then, if it is known where the slot's messages are, it
// trims the slot below the first one that is left.
func (r removal) fromSlot(ctx context.Context, b eventlog.Bounds) error {
	where := []eventlog.Offset{b.First}
	if !r.everywhere {
		where = r.d.offsetsOf(b.Partition, r.isGone)
	}
	if len(where) == 0 {
		return nil
	}
	for at := max(where[0], b.First); at < b.Next; {
		began := time.Now()
		next, err := r.d.owner.log.Drop(ctx, r.changed, r.topic, b.Partition, at, func(rec batch.Record) bool { return r.isGone(headerText(rec, headerTo)) })
		if err != nil {
			return err
		}
		if at = next; !r.everywhere {
			i, _ := slices.BinarySearch(where, at)
			if i == len(where) {
				break
			}
			at = where[i]
		}
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := r.fromBlocks(ctx, b, where); err != nil || r.everywhere {
		return err
	}
	r.d.forgetQueues(r.changed, func(p eventlog.Partition, to string) bool { return p == b.Partition && r.isGone(to) })
	return r.d.trim(ctx, r.changed, b.Partition)
}

// offsetsOf returns the offsets of the messages of some queues in a slot, in order.
func (d *delayed) offsetsOf(p eventlog.Partition, is func(to string) bool) (all []eventlog.Offset) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[p]; s != nil {
		for to, pl := range s.of {
			if is(to) {
				pl.each(p, func(o eventlog.Offset, _ MessageID) { all = append(all, o) })
			}
		}
	}
	slices.Sort(all)
	return all
}

// forgetQueues forgets where the messages of some queues are, unless the store may have been
// rewound since the caller learned that these are gone.
func (d *delayed) forgetQueues(changed <-chan struct{}, is func(p eventlog.Partition, to string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(changed) {
		return
	}
	for p, s := range d.slots {
		maps.DeleteFunc(s.of, func(to string, _ *places) bool { return is(p, to) })
		if s.filling != nil {
			maps.DeleteFunc(s.filling.of, func(to string, _ *places) bool { return is(p, to) })
		}
	}
}

// queues returns the queues that have messages in the wheel, as in headerTo.
func (d *delayed) queues() map[string]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[string]bool)
	for _, s := range d.slots {
		for to := range s.of {
			all[to] = true
		}
	}
	return all
}

// trim trims a slot below its first message that is not done.
func (d *delayed) trim(ctx context.Context, changed <-chan struct{}, p eventlog.Partition) error {
	bounds := d.owner.boundsOf(p)
	below := bounds.First
	err := d.owner.each(ctx, []string{wheelStateKey(p)}, func(_ int, st *claims.State) error {
		mine := st.Within(bounds)
		d.mu.Lock()
		defer d.mu.Unlock()
		s := d.slots[p]
		if s == nil || isClosed(changed) {
			return nil
		}
		below = s.next
		for _, pl := range s.of {
			pl.each(p, func(o eventlog.Offset, _ MessageID) {
				if r, there := mine.At(o); o >= mine.Floor && !(there && r.Fate == claims.Done) {
					below = min(below, o)
				}
			})
		}
		return nil
	})
	if err != nil || below <= bounds.First {
		return err
	}
	if err := d.unsave(ctx, p, bounds.First, below); err != nil {
		return err
	}
	return d.owner.log.TrimFound(ctx, changed, eventlog.Trim{Partition: p, Before: below})[0]
}
