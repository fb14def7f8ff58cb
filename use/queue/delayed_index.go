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
	"github.com/weir-log/weir/use/claims"
)

// All queues share the wheel. delayed tells which of its records are messages of one queue, so that
// a question about one queue does not read the messages of all. A process reads a record at most
// once, when it is first asked. Most records it need not read, because they are in blocks that some
// process saved.
type delayed struct {
	owner    *Queues
	reading  chan struct{} // has a value while somebody reads the wheel
	removing chan struct{} // has a value while somebody removes messages of queues that are gone
	wanted   chan struct{} // has a value while blocks are to be saved

	mu      sync.Mutex      // guards what follows
	changed <-chan struct{} // closed: the store may have been rewound, and have other records
	same    eventlog.Check  // what sameEpoch returned, called before changed was made
	slots   map[eventlog.Partition]*slotted
	bytes   int // how many bytes slots takes

	unsaved      []eventlog.Put // the puts of blocks that were read
	unsavedBytes int
}

// slotted are the messages of one slot of the wheel.
type slotted struct {
	next    eventlog.Offset    // how far the slot was read
	of      map[string]*places // by queue, as in headerTo
	filling *filling           // nil: no message of the block at next was read
}

// places are the messages of one queue in one slot, by offset. For each message text has a varint:
// twice the distance to the offset before, plus one if the message was first enqueued elsewhere. In
// that case its id follows. So most messages take two bytes.
type places struct {
	first, last eventlog.Offset
	n           int64
	text        []byte
}

const (
	// delayedBytes bounds what a process keeps in memory of all delayed messages, and placesBytes
	// is what the first message of a queue in a slot takes. If all messages take more than that, a
	// message is found by reading the wheel, and the messages are not counted.
	delayedBytes = 64 << 20
	placesBytes  = 256
	// delayedFor is how long a count waits until the wheel is read.
	delayedFor = 5 * time.Second
)

// errManyDelayed: the delayed messages take more than delayedBytes.
var errManyDelayed = errors.New("there are too many delayed messages to keep their places in memory")

func newDelayed(owner *Queues) *delayed {
	same := owner.sameEpoch()
	return &delayed{
		owner: owner, reading: make(chan struct{}, 1), removing: make(chan struct{}, 1), wanted: make(chan struct{}, 1),
		same: same, changed: owner.log.IncarnationChanged(), slots: make(map[eventlog.Partition]*slotted),
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

// each calls visit with the offset and the id of each message, in the order of their offsets. It
// ends at what cannot be read (false).
func (pl *places) each(p eventlog.Partition, visit func(eventlog.Offset, MessageID)) (whole bool) {
	text := pl.text
	whole = true
	number := func() uint64 {
		v, n := binary.Uvarint(text)
		if n <= 0 {
			whole, n = false, len(text)
		}
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
		if whole {
			visit(o, id)
		}
	}
	return whole
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
	var slots []*slotReader
	changed := d.forget(topic)
	for i, p := range topic.Partitions {
		if bounds := d.owner.boundsOf(p); bounds.First < bounds.Next && d.readUpTo(p) < bounds.Next {
			keys = append(keys, wheelStateKey(p))
			slots = append(slots, &slotReader{bounds: bounds, records: newRecords(d.owner.log, nil), saves: i >= wheelSlots})
		}
	}
	err := d.owner.each(ctx, keys, func(i int, st *claims.State) error {
		slots[i].mine = st.Within(slots[i].bounds)
		return nil
	})
	if err == nil {
		err = d.readSlots(ctx, changed, slots)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.save()
	return err
}

// forget drops the slots that are empty or of another topic. If the store may have been rewound, it
// drops all slots. It returns a channel that is closed when the store may have been rewound again.
func (d *delayed) forget(topic eventlog.Topic) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(d.changed) {
		d.same = d.owner.sameEpoch()
		d.changed = d.owner.log.IncarnationChanged()
		clear(d.slots)
		d.unsaved, d.unsavedBytes = nil, 0
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

// read reads the records of a slot that were not read, up to an offset.
func (d *delayed) read(ctx context.Context, changed <-chan struct{}, slot *slotReader, to eventlog.Offset) error {
	p := slot.bounds.Partition
	for o := max(slot.mine.Floor, d.readUpTo(p)); o < to; o++ {
		if r, there := slot.mine.At(o); there && r.Fate == claims.Done {
			o = r.End() - 1
			continue
		}
		rec, err := slot.records.read(ctx, p, o)
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil && !gone(err) { // a record that nobody can read is added, too: its message is delayed until the wheel gives it up
			return err
		}
		if err := d.add(changed, slot, o, rec, err == nil); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !isClosed(changed) {
		s := d.slot(p)
		s.next = max(s.next, to)
		d.complete(s, slot, s.next)
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

func (d *delayed) add(changed <-chan struct{}, slot *slotReader, o eventlog.Offset, rec batch.Record, readable bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.canAdd(changed); err != nil {
		return err
	}
	p := slot.bounds.Partition
	m := placed{headerText(rec, headerTo), o, idOf(claims.Grant{Partition: p, Offset: o}, rec)}
	s := d.slot(p)
	d.collect(s, slot, m, readable)
	d.put(s, p, m)
	s.next = o + 1
	return nil
}

// canAdd reports why no message can be added. The caller holds d.mu.
func (d *delayed) canAdd(changed <-chan struct{}) error {
	switch {
	case isClosed(changed):
		return fmt.Errorf("read delayed messages: %w", eventlog.ErrRewound)
	case d.bytes > delayedBytes:
		return errManyDelayed
	}
	return nil
}

// put adds a message that follows all others of its slot and queue. The caller holds d.mu.
func (d *delayed) put(s *slotted, p eventlog.Partition, m placed) {
	pl := s.of[m.to]
	if pl == nil {
		pl = &places{}
		s.of[m.to] = pl
		d.bytes += placesBytes
	}
	d.bytes += pl.add(m.at, p, m.id)
}

// find returns where the message of this id may be in the wheel: the offsets of one slot together.
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

// counts returns how many messages of each queue, as in headerTo, are in the wheel. It costs the
// store calls of catchUp, and one for the states of all slots. nil: the numbers are not known,
// because there are very many messages, or because they are still being read.
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
	err = d.owner.each(ctx, keys, func(i int, st *claims.State) error {
		mine := st.Within(d.owner.boundsOf(slots[i]))
		d.mu.Lock()
		defer d.mu.Unlock()
		s := d.slots[slots[i]]
		if s == nil {
			return nil
		}
		for to, pl := range s.of {
			if mine.Next <= pl.first {
				n[to] += pl.n
				continue
			}
			pl.each(slots[i], func(o eventlog.Offset, _ MessageID) {
				if r, there := mine.At(o); o >= mine.Next || there && r.Fate != claims.Done {
					n[to]++
				}
			})
		}
		return nil
	})
	return n, err
}
