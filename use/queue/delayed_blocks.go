package queue

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// What delayed learns of a slot's records is saved, a block at a time, so that the next process
// need not read them. A block is blockSize offsets of a slot, from a multiple of blockSize on. Its
// key says which of its records are messages of which queue; records that were done when it was
// written may be missing. Whoever reads all records of a block saves it, once.
//
// A key that is missing only costs time: then the records are read. So any process may stop before
// it saves a block, and processes of an earlier version may write beside this one. What a key says
// stays true: a record never changes, what is done stays done, and ids of queues are not reused. A
// rewind that loses the records loses the key, too, because the records were there first and both
// are on one shard; an entry from before the rewind is refused afterwards (sameEpoch).
//
// Slots of level 0 have no blocks: their messages are due within about a minute.
const (
	placesPrefix = "queue/places/"
	blockSize    = 1024
	// saveBytes is about how much one goroutine saves.
	saveBytes = 1 << 20
	// saveEvery is how long the wheel's leader rests after it read new messages to save them, and
	// saveAgain how long after an error.
	saveEvery = 10 * time.Second
	saveAgain = time.Minute
)

// block is the number of a block in its slot.
type block int64

func blockOf(o eventlog.Offset) block { return block(o / blockSize) }

func (b block) first() eventlog.Offset { return eventlog.Offset(b) * blockSize }
func (b block) end() eventlog.Offset   { return (eventlog.Offset(b) + 1) * blockSize }

func (b block) key(p eventlog.Partition) string {
	return placesPrefix + strconv.FormatInt(int64(p), 10) + "/" + strconv.FormatInt(int64(b), 10)
}

// parseBlockKey is the inverse of block.key.
func parseBlockKey(key string) (p eventlog.Partition, b block, ok bool) {
	slot, number, _ := strings.Cut(strings.TrimPrefix(key, placesPrefix), "/")
	p64, err := strconv.ParseInt(slot, 10, 64)
	b64, err2 := strconv.ParseInt(number, 10, 64)
	return eventlog.Partition(p64), block(b64), err == nil && err2 == nil
}

// savedPlaces are the places of one queue in the value of a block's key, which is JSON: an object
// with a member for each queue, named as in headerTo.
type savedPlaces struct {
	First eventlog.Offset `json:"first"`
	Text  []byte          `json:"text"` // as in places
}

// filling is a block of which records are being read.
type filling struct {
	block      block
	of         map[string]*places // as in slotted
	unreadable bool               // a record cannot be read, perhaps only by this process: the block is not saved
}

func (f *filling) value() []byte {
	all := make(map[string]savedPlaces, len(f.of))
	for to, pl := range f.of {
		all[to] = savedPlaces{pl.first, pl.text}
	}
	return encodeBlock(all)
}

func encodeBlock(all map[string]savedPlaces) []byte {
	value, err := json.Marshal(all)
	if err != nil {
		panic("queue: encode a block: " + err.Error()) // it holds texts and numbers
	}
	return value
}

// placed is a message in a slot.
type placed struct {
	to string // as in headerTo
	at eventlog.Offset
	id MessageID
}

// parseBlock returns the messages that a block's value has, those of each queue in order; false: it
// cannot be read, or has messages that are not in the block.
func parseBlock(p eventlog.Partition, b block, value []byte) (all []placed, ok bool) {
	var saved map[string]savedPlaces
	if json.Unmarshal(value, &saved) != nil {
		return nil, false
	}
	for to, sp := range saved {
		next, ordered := b.first(), true
		whole := (&places{first: sp.First, text: sp.Text}).each(p, func(o eventlog.Offset, id MessageID) {
			ordered = ordered && next <= o && o < b.end()
			next = o + 1
			all = append(all, placed{to, o, id})
		})
		if !whole || !ordered {
			return nil, false
		}
	}
	return all, true
}

// slotReader reads what was added to a slot.
type slotReader struct {
	bounds  eventlog.Bounds
	mine    *claims.Part
	records *records // not Queues.records: what workers need stays cached there
	saves   bool     // the slot has blocks
}

// blocks returns the blocks that have messages which are not done, and that begin at next or later:
// next is how far this process has read the slot.
func (r *slotReader) blocks(next eventlog.Offset) (all []block) {
	if !r.saves {
		return nil
	}
	at := r.mine.Floor
	if next > at {
		at = blockOf(next + blockSize - 1).first()
	}
	for {
		if run, there := r.mine.At(at); there && run.Fate == claims.Done {
			at = run.End()
			continue
		}
		b := blockOf(at)
		if b.end() > r.bounds.Next {
			return all
		}
		all = append(all, b)
		at = b.end()
	}
}

// readSlots reads what was added to some slots, from blocks where these are saved: one store call
// for each thousand blocks or 4 MiB of them.
func (d *delayed) readSlots(ctx context.Context, changed <-chan struct{}, slots []*slotReader) error {
	var keys []string
	var of []*slotReader
	for _, r := range slots {
		for _, b := range r.blocks(d.readUpTo(r.bounds.Partition)) {
			keys, of = append(keys, b.key(r.bounds.Partition)), append(of, r)
		}
	}
	n := 0
	err := d.owner.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		r := of[n]
		n++
		if kv.Version == 0 {
			return nil // the block was not saved: its records are read before the next block, or at the end
		}
		_, b, _ := parseBlockKey(kv.Key)
		messages, ok := parseBlock(r.bounds.Partition, b, kv.Value)
		if !ok {
			return nil
		}
		if err := d.read(ctx, changed, r, b.first()); err != nil {
			return err
		}
		return d.addBlock(changed, r, b, messages)
	})
	if err != nil {
		return err
	}
	for _, r := range slots {
		if err := d.read(ctx, changed, r, r.bounds.Next); err != nil {
			return err
		}
	}
	return nil
}

// addBlock adds the messages of a saved block that are not done. The slot was read up to the block.
func (d *delayed) addBlock(changed <-chan struct{}, r *slotReader, b block, messages []placed) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.canAdd(changed); err != nil {
		return err
	}
	s := d.slot(r.bounds.Partition)
	for _, m := range messages {
		if run, there := r.mine.At(m.at); m.at < max(s.next, r.mine.Floor) || there && run.Fate == claims.Done {
			continue
		}
		d.put(s, r.bounds.Partition, m)
	}
	s.next, s.filling = b.end(), nil
	return nil
}

// collect adds a message that was read to its block. The caller holds d.mu.
func (d *delayed) collect(s *slotted, r *slotReader, m placed, readable bool) {
	if !r.saves {
		return
	}
	d.complete(s, r, m.at)
	if s.filling == nil {
		s.filling = &filling{block: blockOf(m.at), of: make(map[string]*places)}
	}
	pl := s.filling.of[m.to]
	if pl == nil {
		pl = &places{}
		s.filling.of[m.to] = pl
	}
	pl.add(m.at, r.bounds.Partition, m.id)
	s.filling.unreadable = s.filling.unreadable || !readable
}

// complete saves a slot's block if the slot was read to the block's end. The caller holds d.mu.
func (d *delayed) complete(s *slotted, r *slotReader, next eventlog.Offset) {
	f := s.filling
	if f == nil || next < f.block.end() {
		return
	}
	s.filling = nil
	if f.unreadable || d.owner.log.ReadOnly() {
		return
	}
	put := eventlog.Put{Key: f.block.key(r.bounds.Partition), Version: eventlog.Version(0).Next(), Value: f.value()}
	d.unsaved, d.unsavedBytes = append(d.unsaved, put), d.unsavedBytes+len(put.Value)
	if d.unsavedBytes >= saveBytes {
		d.save()
	}
}

// save saves, in the background, the blocks that were read. The caller holds d.mu.
func (d *delayed) save() {
	puts, same := d.unsaved, d.same
	d.unsaved, d.unsavedBytes = nil, 0
	if len(puts) == 0 {
		return
	}
	d.owner.start(func(ctx context.Context) {
		var tickets []*eventlog.Ticket
		for _, put := range puts { // an entry for each: another process may have saved some of them
			tickets = append(tickets, d.owner.log.Submit(ctx, eventlog.Entry{Checks: []eventlog.Check{{Key: put.Key}, same}, Puts: []eventlog.Put{put}}))
		}
		var failed error
		for _, t := range tickets {
			if _, err := t.Wait(ctx); err != nil && !isStale(err) {
				failed = err
			}
		}
		if failed != nil && ctx.Err() == nil {
			d.owner.logger.Info("the places of some delayed messages were not saved: the next process reads these messages", "err", failed)
		}
	})
}

// run saves blocks while this process is the wheel's leader, until ctx ends.
func (d *delayed) run(ctx context.Context) {
	for swept := false; ; {
		select {
		case <-d.wanted:
		case <-ctx.Done():
			return
		}
		var err error
		if !swept {
			err = d.sweep(ctx)
			swept = err == nil
		}
		if err == nil {
			err = d.catchUp(ctx)
		}
		rest := saveEvery
		if err != nil { // not logged: the store's observer sees its errors, and too many messages are no fault
			rest = saveAgain
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return
		}
	}
}

// want wakes run if a slot of the wheel has complete blocks that this process has not read.
func (d *delayed) want(topic eventlog.Topic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range topic.Partitions[min(wheelSlots, len(topic.Partitions)):] {
		bounds := d.owner.boundsOf(p)
		next := bounds.First
		if s := d.slots[p]; s != nil && !isClosed(d.changed) {
			next = max(next, s.next)
		}
		if blockOf(bounds.Next) > blockOf(next) {
			select {
			case d.wanted <- struct{}{}:
			default:
			}
			return
		}
	}
}

// sweep deletes the blocks that unsave left, because its process was stopped, or is of an earlier
// version that does not delete blocks, or because another process saved a block just then.
func (d *delayed) sweep(ctx context.Context) error {
	topic, _ := d.owner.wheel.known()
	var keys []string
	err := d.owner.log.ListPages(ctx, placesPrefix, 100, nil, func(kv eventlog.KeyValue) error {
		p, b, ok := parseBlockKey(kv.Key)
		if !ok || number(topic, p) < 0 || b.end() <= d.owner.boundsOf(p).First {
			keys = append(keys, kv.Key)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.deleteKeys(ctx, keys)
}

// unsave deletes the blocks of a slot that is about to be trimmed from first to below: an entry for
// each forgetMost.
func (d *delayed) unsave(ctx context.Context, p eventlog.Partition, first, below eventlog.Offset) error {
	if topic, _ := d.owner.wheel.known(); number(topic, p) < wheelSlots {
		return nil
	}
	var keys []string
	for b := blockOf(first); b.end() <= below; b++ {
		keys = append(keys, b.key(p))
	}
	return d.deleteKeys(ctx, keys)
}

// deleteKeys deletes keys, forgetMost in an entry; some may be missing.
func (d *delayed) deleteKeys(ctx context.Context, keys []string) error {
	for some := range slices.Chunk(keys, forgetMost) {
		var e eventlog.Entry
		for _, key := range some {
			e.Puts = append(e.Puts, eventlog.Put{Key: key})
		}
		if _, err := d.owner.log.Append(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// fromBlocks removes from the saved blocks of a slot the messages of queues that are gone, which
// are at the offsets in where, or everywhere. It costs a store call for each thousand blocks or 4
// MiB of them, and one for each that has such messages. If the process stops before it is done, the
// next one continues, because the notes of those queues are still there. Until then the blocks have
// places of messages that do not exist any more; no queue counts them.
func (r removal) fromBlocks(ctx context.Context, slot eventlog.Bounds, where []eventlog.Offset) error {
	var keys []string
	add := func(b block) { keys = append(keys, b.key(slot.Partition)) }
	for _, o := range where {
		if !r.everywhere {
			add(blockOf(o))
		}
	}
	for b := blockOf(slot.First); r.everywhere && b.end() <= slot.Next; b++ {
		add(b)
	}
	return r.d.owner.log.GetAll(ctx, slices.Compact(keys), func(kv eventlog.KeyValue) error {
		if kv.Version == 0 {
			return nil
		}
		put := eventlog.Put{Key: kv.Key} // without a value: it deletes a block that cannot be read
		var saved map[string]savedPlaces
		if json.Unmarshal(kv.Value, &saved) == nil {
			had := len(saved)
			maps.DeleteFunc(saved, func(to string, _ savedPlaces) bool { return r.isGone(to) })
			if len(saved) == had {
				return nil
			}
			put.Version, put.Value = kv.Version.Next(), encodeBlock(saved)
		}
		_, err := r.d.owner.log.Append(ctx, eventlog.Entry{Checks: []eventlog.Check{{Key: kv.Key, Version: kv.Version}, r.same}, Puts: []eventlog.Put{put}})
		return err
	})
}
