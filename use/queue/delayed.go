package queue

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// All queues share the wheel. delayed tells which of its records are messages of one queue, so that
// a question about one queue does not read the messages of all. A process reads the records once,
// when it is first asked, and later only the new ones. The store has nothing of this: messages that
// were delayed by any version of weir are in it.
type delayed struct {
	owner    *Queues
	reading  chan struct{} // has a value while somebody reads the wheel
	removing chan struct{} // has a value while somebody removes messages of queues that are gone

	mu      sync.Mutex      // guards what follows
	changed <-chan struct{} // closed: the store may have been rewound, and have other records
	slots   map[eventlog.Partition]*slotted
	bytes   int // of slots
}

// slotted are the messages of one slot of the wheel.
type slotted struct {
	next eventlog.Offset    // how far the slot was read
	of   map[string]*places // by queue, as in headerTo
}

// places are the messages of one queue in one slot, by offset. For each, text has the distance to
// the offset before, doubled, as a varint; plus one if the message was first enqueued elsewhere:
// then its id follows. So most messages take two bytes.
type places struct {
	first, last eventlog.Offset
	n           int64
	text        []byte
}

const (
	// delayedBytes bounds what a process keeps in memory of all delayed messages, and placesBytes
	// is what the first message of a queue in a slot takes. More messages are found by reading
	// them, and not counted.
	delayedBytes = 64 << 20
	placesBytes  = 256
	// delayedFor is how long a count waits until the wheel is read.
	delayedFor = 5 * time.Second
)

// errManyDelayed: the delayed messages take more than delayedBytes.
var errManyDelayed = errors.New("there are too many delayed messages to keep their places in memory")

func newDelayed(owner *Queues) *delayed {
	return &delayed{
		owner: owner, reading: make(chan struct{}, 1), removing: make(chan struct{}, 1), changed: owner.log.IncarnationChanged(),
		slots: make(map[eventlog.Partition]*slotted),
	}
}

func (pl *places) add(o eventlog.Offset, p eventlog.Partition, id MessageID) (bytes int) {
	before := len(pl.text)
	if pl.n == 0 {
		pl.first, pl.last = o, o
	}
	gap := uint64(o-pl.last) << 1
	if id == (MessageID{p, o}) {
		pl.text = binary.AppendUvarint(pl.text, gap)
	} else {
		pl.text = binary.AppendUvarint(pl.text, gap|1)
		pl.text = binary.AppendUvarint(pl.text, uint64(id.Partition))
		pl.text = binary.AppendUvarint(pl.text, uint64(id.Offset))
	}
	pl.last = o
	pl.n++
	return len(pl.text) - before
}

// each calls visit with the offset and the id of each message, in the order of their offsets.
func (pl *places) each(p eventlog.Partition, visit func(eventlog.Offset, MessageID)) {
	text := pl.text
	number := func() uint64 {
		v, n := binary.Uvarint(text)
		text = text[n:]
		return v
	}
	for o := pl.first; len(text) > 0; {
		gap := number()
		o += eventlog.Offset(gap >> 1)
		id := MessageID{p, o}
		if gap&1 != 0 {
			id = MessageID{eventlog.Partition(number()), eventlog.Offset(number())}
		}
		visit(o, id)
	}
}

// catchUp reads what was added to the wheel since the last time. After an error, the next call goes
// on where this one ended.
func (d *delayed) catchUp(ctx context.Context) error {
	select {
	case d.reading <- struct{}{}:
		defer func() { <-d.reading }()
	case <-ctx.Done():
		return fmt.Errorf("%w: gave up while others read the delayed messages (%w)",
			eventlog.ErrUnavailable, context.Cause(ctx))
	}
	topic, _ := d.owner.wheel.known()
	var keys []string
	var slots []eventlog.Bounds
	changed := d.forget(topic)
	for _, p := range topic.Partitions {
		if bounds := d.owner.boundsOf(p); bounds.First < bounds.Next && d.readUpTo(p) < bounds.Next {
			keys, slots = append(keys, wheelStateKey(p)), append(slots, bounds)
		}
	}
	return d.owner.each(ctx, keys, func(i int, st *state) error {
		return d.read(ctx, changed, slots[i], st.within(slots[i]))
	})
}

// forget drops the slots that are empty or of another topic, or all after the store may have been
// rewound. It returns a channel that is closed when it may be rewound again.
func (d *delayed) forget(topic eventlog.Topic) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(d.changed) {
		d.changed = d.owner.log.IncarnationChanged()
		clear(d.slots)
	}
	d.bytes = 0
	for p, s := range d.slots {
		if bounds := d.owner.boundsOf(p); number(topic, p) < 0 || s.next <= bounds.First {
			delete(d.slots, p)
			continue
		}
		for _, pl := range s.of {
			d.bytes += placesBytes + cap(pl.text)
		}
	}
	return d.changed
}

func (d *delayed) readUpTo(p eventlog.Partition) eventlog.Offset {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[p]; s != nil {
		return s.next
	}
	return 0
}

// read reads the new records of a slot.
func (d *delayed) read(ctx context.Context, changed <-chan struct{}, bounds eventlog.Bounds, mine *part) error {
	p := bounds.Partition
	records := newRecords(d.owner.log, nil) // a reader of its own: what workers need stays in memory
	for o := max(mine.floor, d.readUpTo(p)); o < bounds.Next; o++ {
		if r, there := mine.at(o); there && r.fate == done {
			o = r.end() - 1
			continue
		}
		rec, err := records.read(ctx, p, o)
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil && !gone(err) { // one that cannot be read is there until the wheel gives it up
			return err
		}
		if err := d.add(changed, p, o, rec); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !isClosed(changed) {
		d.slot(p).next = bounds.Next
	}
	return nil
}

// slot returns a slot. The caller holds d.mu.
func (d *delayed) slot(p eventlog.Partition) *slotted {
	s := d.slots[p]
	if s == nil {
		s = &slotted{of: make(map[string]*places)}
		d.slots[p] = s
	}
	return s
}

func (d *delayed) add(changed <-chan struct{}, p eventlog.Partition, o eventlog.Offset, rec batch.Record) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case isClosed(changed):
		return fmt.Errorf("read delayed messages: %w", eventlog.ErrRewound)
	case d.bytes > delayedBytes:
		return errManyDelayed
	}
	s := d.slot(p)
	s.next = o + 1
	to := headerText(rec, headerTo)
	pl := s.of[to]
	if pl == nil {
		pl = &places{}
		s.of[to] = pl
		d.bytes += placesBytes
	}
	d.bytes += pl.add(o, p, idOf(grant{partition: p, offset: o}, rec))
	return nil
}

// find returns where the message of this id may be in the wheel, in the slots' order.
func (d *delayed) find(q *Queue, id MessageID) (at []MessageID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p, s := range d.slots {
		if pl := s.of[string(q.headerTo().Value)]; pl != nil {
			pl.each(p, func(o eventlog.Offset, is MessageID) {
				if is == id {
					at = append(at, MessageID{p, o})
				}
			})
		}
	}
	return at
}

// offsets returns the offsets in a slot that may be messages of a queue, in order.
func (d *delayed) offsets(q *Queue, p eventlog.Partition) (all []eventlog.Offset) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.slots[p]
	if s == nil {
		return nil
	}
	if pl := s.of[string(q.headerTo().Value)]; pl != nil {
		pl.each(p, func(o eventlog.Offset, _ MessageID) { all = append(all, o) })
	}
	return all
}

// counts returns how many messages of each queue, as in headerTo, are in the wheel: one store call
// for the states of all slots. nil: that is not known, because there are very many, or because they
// are still being read.
func (d *delayed) counts(ctx context.Context) (map[string]int64, error) {
	wait, cancel := context.WithTimeout(ctx, delayedFor)
	err := d.catchUp(wait)
	ended := wait.Err() != nil && ctx.Err() == nil
	cancel()
	if errors.Is(err, errManyDelayed) || err != nil && ended {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	var slots []eventlog.Partition
	for p := range d.slots {
		slots = append(slots, p)
	}
	d.mu.Unlock()
	slices.Sort(slots)
	keys := make([]string, len(slots))
	for i, p := range slots {
		keys[i] = wheelStateKey(p)
	}
	n := make(map[string]int64)
	err = d.owner.each(ctx, keys, func(i int, st *state) error {
		mine := st.within(d.owner.boundsOf(slots[i]))
		d.mu.Lock()
		defer d.mu.Unlock()
		s := d.slots[slots[i]]
		if s == nil {
			return nil
		}
		for to, pl := range s.of {
			if mine.next <= pl.first {
				n[to] += pl.n
				continue
			}
			pl.each(slots[i], func(o eventlog.Offset, _ MessageID) {
				if r, there := mine.at(o); o >= mine.next || there && r.fate != done {
					n[to]++
				}
			})
		}
		return nil
	})
	return n, err
}
