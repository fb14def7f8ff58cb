package queue

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/ledger"
	"github.com/weir-log/weir/use/publish"
)

// Delayed messages wait in a hierarchical timing wheel: each slot is a partition that stands for a
// span of time. When the span begins, its messages move to slots of shorter spans, and from a slot
// of 1 s to their queue. So a delayed message needs no key in the store, and is copied a few times
// at most.
//
// A wrong clock loses no message: a slot is read when messages come, and again when its next span
// begins or has passed. Messages due before the next span do not wait for it: they move to another
// slot, or wait in memory until they are due (readSlot).
//
//	level 0   64 slots of 1 s            level 3   64 slots of 3 days
//	level 1   64 slots of 64 s           level 4   64 slots of 194 days
//	level 2   64 slots of 68 min
//
// Each slot has a state like a queue's partition, changed in the entry that moves messages: a
// message leaves a slot once, whichever process moves it. One process is the leader, to save work;
// correctness does not need it.
const (
	wheelTopic  = "__weir_later"
	wheelLevels = 5
	wheelSlots  = 64
	wheelSpan   = claims.Time(1000) // the span of a slot of level 0, in milliseconds

	wheelStates = "queue/later/"
	leaderKey   = "queue/turner"
)

const (
	// leaderHeartbeat is how often the leader puts its key again; leaderTimeout is the age of the
	// key at which another process takes over.
	leaderHeartbeat = 2 * time.Second
	leaderTimeout   = 7 * time.Second
	// openBefore is how long before its span a slot is read.
	openBefore = claims.Time(2000)
	// stayBytes bounds what one pass reads of a slot's messages that stay there: due messages are
	// moved only after all slots were read.
	stayBytes = 4 << 20
	// movesMax and movesBytes bound what moves in one change.
	movesMax   = 1000
	movesBytes = 1 << 20
	// dueBytes bounds the messages held in memory until they are due.
	dueBytes = 64 << 20
	// deletedMax is how many deleted queues, and how many deleted topics, are remembered at most.
	deletedMax = 1000
	// passMin is the least time between two passes; messages due within it move together.
	passMin = 20 * time.Millisecond
)

// Headers of a message in the wheel.
const (
	headerTo  = "weir.queue.to"  // the queue's name and id
	headerDue = "weir.queue.due" // Time, in decimal digits
)

// headerAvailable holds when a message that was delayed, or waits for a retry, could first be
// claimed: the queue's TTL counts from then.
const headerAvailable = "weir.queue.available"

// HeaderPriorAttempts holds how many attempts a message had before it was delayed for a retry. A
// redrive sets it to 0.
const HeaderPriorAttempts = "weir.queue.tried"

// slotOf returns the slot for a message with the due time due, as seen at the time now: the slot's
// span begins before the message is due.
func slotOf(now, due claims.Time) int32 {
	due = max(due, now)
	span := wheelSpan
	for level := 0; ; level++ {
		ahead := due/span - now/span
		if ahead >= wheelSlots && level < wheelLevels-1 {
			span *= wheelSlots
			continue
		}
		at := now/span + min(ahead, wheelSlots-1)
		return int32(level*wheelSlots + int(at%wheelSlots))
	}
}

// wheel moves delayed messages to their queues when they are due.
type wheel struct {
	owner   *Queues
	slots   map[int32]*slot
	due     dueHeap          // messages that were read and are not due yet
	bytes   int              // how many bytes the messages in due have
	deleted map[string]bool  // deleted or purged queues, named as in headerTo; ids are never reused
	ledAt   time.Time        // when this process last renewed its leadership; zero: it is not the leader
	silent  eventlog.Silence // for how long the leader's key was not put
	rewound <-chan struct{}  // closed if the store is found rewound after slots and due were read
	wake    chan struct{}    // has a value after this process looked up the wheel's topic, to add a message to it
}

// slot is a partition of the wheel. Its messages below next are done, or in wheel.due, or due at
// opens or later.
type slot struct {
	*shard
	partition eventlog.Partition
	next      eventlog.Offset // the next offset to read
	opens     claims.Time     // when its next span begins: then all its messages are read again. 0: in the next pass
}

type dueMessage struct {
	due  claims.Time
	slot int32
	from eventlog.Offset // in [from, at) there are only messages that are done, or were removed (removeGone)
	at   eventlog.Offset
	rec  batch.Record
	gone bool // it cannot be read, or is not there: it leaves its slot, and is dropped
}

func (m dueMessage) size() int { return 256 + batch.SealedSize(&m.rec) }

type dueHeap []dueMessage

func (h dueHeap) Len() int { return len(h) }
func (h dueHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].due, h[j].due), cmp.Compare(h[i].at, h[j].at)) < 0
}
func (h dueHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)   { *h = append(*h, x.(dueMessage)) }
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	m := (*h)[last]
	(*h)[last] = dueMessage{}
	*h = (*h)[:last]
	return m
}

func newWheel(owner *Queues) *wheel {
	return &wheel{owner: owner, slots: make(map[int32]*slot), deleted: make(map[string]bool), wake: make(chan struct{}, 1)}
}

// topic returns the wheel's topic, and creates it if it does not exist.
func (w *wheel) topic(ctx context.Context) (eventlog.Topic, error) {
	spec := topicSpec(eventlog.Owner{}, wheelTopic, wheelLevels*wheelSlots, 1<<30)
	spec.Internal = true
	t, _, err := w.owner.makeTopic(ctx, spec)
	if err == nil && len(t.Partitions) != spec.Partitions {
		err = fmt.Errorf("topic %q has %d partitions, but delayed messages need %d", wheelTopic, len(t.Partitions), spec.Partitions)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return t, err
}

// event builds the event that adds a message to the wheel.
func (w *wheel) event(ctx context.Context, q *Queue, m NewMessage, now, due claims.Time) (publish.Event, error) {
	topic, err := w.topic(ctx)
	if err != nil {
		return publish.Event{}, err
	}
	slot := slotOf(now, due)
	return publish.Event{
		Topic: topic.Name, TopicID: topic.ID, Internal: true, Partition: &slot, Key: m.Key, Value: m.Value, Time: m.Time,
		Headers: append(append([]batch.RecordHeader(nil), m.Headers...), q.delayHeaders(due)...),
	}, nil
}

// delayHeaders returns the headers that name the queue and the due time of a delayed message.
func (q *Queue) delayHeaders(due claims.Time) []batch.RecordHeader {
	return []batch.RecordHeader{
		q.headerTo(),
		{Key: headerDue, Value: strconv.AppendInt(nil, int64(due), 10)},
	}
}

// run moves due messages until ctx ends. An empty wheel costs no store calls.
func (w *wheel) run(ctx context.Context) {
	w.rewound = w.owner.log.IncarnationChanged()
	for failures := 0; ctx.Err() == nil; {
		if isClosed(w.rewound) { // after a rewind, a deleted queue may exist again
			w.rewound = w.owner.log.IncarnationChanged()
			w.drop()
			clear(w.slots)
		}
		began := time.Now()
		spans := w.ends() // read before the pass, so that a later append ends the sleep
		wait, err := w.pass(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && failures == 0:
			w.owner.logger.Warn("cannot move due messages to their queues; trying again", "err", err)
		case err == nil && failures > 0:
			w.owner.logger.Info("due messages are moved to their queues again", "failures", failures)
		}
		if err != nil {
			failures++
			w.drop()
			eventlog.Pause(ctx, failures)
			continue
		}
		failures = 0
		w.sleep(ctx, wait, spans)
		if rest := passMin - time.Since(began); rest > 0 { // so that a busy wheel reads many new messages in one pass
			select {
			case <-time.After(rest):
			case <-ctx.Done():
			}
		}
	}
}

// ends returns a span at the end of each slot, for sleep to wait on; none if the wheel's topic does
// not exist.
func (w *wheel) ends() (spans []eventlog.Span) {
	topic, _ := w.known()
	for _, p := range topic.Partitions {
		b, _ := w.owner.log.Known(p)
		spans = append(spans, eventlog.Span{Partition: p, From: b.Next, MaxBytes: 1})
	}
	return spans
}

// sleep waits until wait has passed, a message is appended past one of the spans, or the store is
// found rewound: then its slots may end before the spans.
func (w *wheel) sleep(ctx context.Context, wait time.Duration, spans []eventlog.Span) {
	if len(spans) == 0 {
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-w.rewound:
		case <-time.After(min(wait, leaderHeartbeat)):
		}
		return
	}
	_, err := w.owner.log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: 1, MaxWait: max(wait, time.Millisecond), Stop: w.rewound})
	if err != nil {
		eventlog.Pause(ctx, 1)
	}
}

func wheelStateKey(p eventlog.Partition) string {
	return wheelStates + strconv.FormatInt(int64(p), 10)
}

// has reports whether a partition is one of the wheel's.
func (w *wheel) has(p eventlog.Partition) bool { return isWheel(w.owner.log, p) }

func isWheel(log *eventlog.Log, p eventlog.Partition) bool {
	topic, there := knownWheel(log)
	return there && number(topic, p) >= 0
}

// known returns the wheel's topic, if this process's catalog has it.
func (w *wheel) known() (eventlog.Topic, bool) { return knownWheel(w.owner.log) }

func knownWheel(log *eventlog.Log) (eventlog.Topic, bool) {
	for _, t := range log.Topics() {
		if t.Name == wheelTopic {
			return t, true
		}
	}
	return eventlog.Topic{}, false
}

// pass moves what is due and returns the time until the next pass.
func (w *wheel) pass(ctx context.Context) (wait time.Duration, err error) {
	topic, there := w.known()
	if !there || w.empty(topic) {
		w.drop()
		return time.Minute, nil
	}
	if mine, err := w.isLeader(ctx); err != nil || !mine {
		w.drop()
		return leaderHeartbeat, err
	}
	now, _, err := w.owner.clock.Now(ctx)
	if err != nil {
		return 0, err
	}
	if err := w.fill(ctx, topic); err != nil {
		return 0, err
	}
	for i := range topic.Partitions {
		if err := w.readSlot(ctx, topic, int32(i), now); err != nil {
			return 0, err
		}
	}
	if err := w.deliver(ctx, topic); err != nil {
		return 0, err
	}
	w.owner.delayed.want(topic)
	now, _, err = w.owner.clock.Now(ctx)
	if err != nil {
		return 0, err
	}
	return max(time.Duration(w.next(topic, now)-now)*time.Millisecond, passMin), nil
}

// next returns when the next pass must begin: when the first message in wheel.due is due, or when
// the next slot that has messages opens, at most a minute from now.
func (w *wheel) next(topic eventlog.Topic, now claims.Time) claims.Time {
	next := now + claims.Time(time.Minute.Milliseconds())
	if len(w.due) > 0 {
		next = min(next, w.due[0].due)
	}
	for i, p := range topic.Partitions {
		s := w.slots[int32(i)]
		switch b, _ := w.owner.log.Known(p); {
		case b.First >= b.Next:
		case s == nil || s.next < b.Next && w.bytes < dueBytes:
			return now // there is more to read
		default:
			next = min(next, s.opens-openBefore)
		}
	}
	return next
}

// spanOf returns the length of a slot's span.
func spanOf(slot int32) claims.Time {
	span := wheelSpan
	for range slot / wheelSlots {
		span *= wheelSlots
	}
	return span
}

// opening returns the start of a slot's next span, the first that begins after now.
func opening(slot int32, now claims.Time) claims.Time {
	span := spanOf(slot)
	at := now/span + 1
	return span * (at + (claims.Time(slot)+wheelSlots-at%wheelSlots)%wheelSlots)
}

func (w *wheel) empty(topic eventlog.Topic) bool {
	for _, p := range topic.Partitions {
		if b, _ := w.owner.log.Known(p); b.First < b.Next {
			return false
		}
	}
	return true
}

// isLeader reports whether this process is the leader. It renews the leader's key every
// leaderHeartbeat, and takes over a key older than leaderTimeout, or seen unchanged for so long: at
// most two store calls.
func (w *wheel) isLeader(ctx context.Context) (bool, error) {
	if !w.ledAt.IsZero() && time.Since(w.ledAt) < leaderHeartbeat {
		return true, nil
	}
	asked := time.Now()
	me, upkeep := []byte(w.owner.process), ledger.Upkeep{Log: w.owner.log}
	mine, err := ledger.Turn(ctx, upkeep, leaderKey, me, func(now eventlog.KeyValue) bool {
		return bytes.Equal(now.Value, me) || w.silent.Of(now, asked) >= leaderTimeout
	})
	if mine {
		w.ledAt = asked
	}
	return mine, err
}

// drop gives up leadership in this process, and forgets what other processes may change.
func (w *wheel) drop() {
	for _, m := range w.due {
		w.readAgain(m.slot)
	}
	for _, s := range w.slots {
		s.Forget()
	}
	w.ledAt, w.due, w.bytes = time.Time{}, nil, 0
	clear(w.deleted)
}

// readAgain makes the next pass read all of a slot.
func (w *wheel) readAgain(i int32) {
	if s := w.slots[i]; s != nil {
		s.opens = 0
	}
}

// slot returns a slot.
func (w *wheel) slot(i int32, p eventlog.Partition) *slot {
	s := w.slots[i]
	if s == nil || s.partition != p { // the topic may have been deleted and created again
		s = &slot{
			shard:     newShard(w.owner, nil, fmt.Sprintf("delayed messages, slot %d", i), wheelStateKey(p)),
			partition: p,
		}
		w.slots[i] = s
	}
	return s
}

// fill reads the states that are not known of the slots that have messages.
func (w *wheel) fill(ctx context.Context, topic eventlog.Topic) error {
	var unknown []*shard
	for i, p := range topic.Partitions {
		if b, _ := w.owner.log.Known(p); b.First >= b.Next {
			continue
		}
		if s := w.slot(int32(i), p); s.known() == nil {
			unknown = append(unknown, s.shard)
		}
	}
	return w.owner.fill(ctx, unknown)
}

// readSlot reads a slot's new messages, and all its messages when its span begins. Messages that
// are due before the slot's next span wait in wheel.due if they are due within 2 s, or still belong
// in this slot; otherwise they move to another slot. Messages that are due later stay.
func (w *wheel) readSlot(ctx context.Context, topic eventlog.Topic, i int32, now claims.Time) (err error) {
	p := topic.Partitions[i]
	bounds, _ := w.owner.log.Known(p)
	if bounds.First >= bounds.Next {
		delete(w.slots, i)
		return nil
	}
	s := w.slot(i, p)
	opens := s.opens <= now+openBefore
	if !opens && s.next >= bounds.Next {
		return nil
	}
	defer func() {
		if err != nil {
			w.readAgain(i)
		}
	}()
	known, err := s.get(ctx)
	if err != nil {
		return err
	}
	mine := *known.Clone().Part(p)
	mine.Trimmed(bounds.First)
	if opens || s.next < mine.Floor {
		s.next = mine.Floor
	}
	s.opens = opening(i, now+openBefore) // earlier than it was, if the clock was set back
	if mine.Floor >= bounds.Next {
		return w.trim(ctx, s, mine.Floor)
	}
	records := newRecords(w.owner.log, nil) // a reader of its own: what workers need stays in memory
	var moves []dueMessage
	bytes, stayed := 0, 0
	from, holes := s.next, false // from: the offset after the last message that is there; holes: messages between from and here were removed
	for s.next < bounds.Next && w.bytes < dueBytes && stayed < stayBytes {
		at := s.next
		if r, there := mine.At(at); there && r.Fate == claims.Done {
			s.next++
			continue
		}
		rec, err := records.read(ctx, p, at)
		if err != nil && !gone(err) {
			return err
		}
		s.next++
		if errors.Is(err, errNoRecord) { // this offset is marked done together with the next message that leaves: if it were marked alone, it would split the state's runs
			holes = true
			continue
		}
		if err != nil {
			w.owner.logger.Error("a delayed message cannot be read; giving it up", "message", MessageID{p, at}.String(), "err", err)
		}
		m := dueMessage{due: dueOf(rec), slot: i, from: from, at: at, rec: rec, gone: err != nil}
		from, holes = s.next, false
		to := slotOf(now+openBefore, m.due)
		switch {
		case m.gone:
		case m.due >= s.opens:
			stayed += m.size()
			continue
		case to == i || to < wheelSlots && m.due < now+2*wheelSpan:
			heap.Push(&w.due, m)
			w.bytes += m.size()
			continue
		}
		moves = append(moves, m)
		bytes += m.size()
		if len(moves) == movesMax || bytes >= movesBytes {
			if err := w.move(ctx, topic, s, moves); err != nil {
				return err
			}
			moves, bytes = nil, 0
		}
	}
	if holes && s.next >= bounds.Next {
		moves = append(moves, dueMessage{slot: i, from: from, at: s.next - 1, gone: true})
	}
	return w.move(ctx, topic, s, moves)
}

func dueOf(rec batch.Record) claims.Time {
	for _, h := range rec.Headers {
		if h.Key == headerDue {
			if due, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				return claims.Time(due)
			}
		}
	}
	return 0 // not written by weir: due immediately
}

// deliver moves due messages to their queues.
func (w *wheel) deliver(ctx context.Context, topic eventlog.Topic) error {
	now, _, err := w.owner.clock.Now(ctx)
	if err != nil {
		return err
	}
	ready := make(map[int32][]dueMessage)
	for len(w.due) > 0 && w.due[0].due <= now {
		m := heap.Pop(&w.due).(dueMessage)
		w.bytes -= m.size()
		ready[m.slot] = append(ready[m.slot], m)
	}
	for i, messages := range ready {
		s := w.slots[i]
		if s == nil {
			continue
		}
		for len(messages) > 0 {
			n, bytes := 0, 0
			for n < min(len(messages), movesMax) && (n == 0 || bytes+messages[n].size() <= movesBytes) {
				bytes += messages[n].size()
				n++
			}
			if err := w.move(ctx, topic, s, messages[:n]); err != nil {
				for i := range ready {
					w.readAgain(i)
				}
				return err
			}
			messages = messages[n:]
		}
	}
	return nil
}

// move moves messages out of a slot: each into its queue, or into another slot.
func (w *wheel) move(ctx context.Context, topic eventlog.Topic, s *slot, messages []dueMessage) error {
	if len(messages) == 0 {
		return nil
	}
	now, _, err := w.owner.clock.Now(ctx)
	if err != nil {
		return err
	}
	to := make([]preparation, len(messages))
	queues := make(map[string]*Queue)
	for i, m := range messages {
		if to[i], err = w.target(ctx, topic, s, m, now, queues); err != nil {
			return err
		}
	}
	if err := w.findUnique(ctx, s.partition, messages, to, queues); err != nil {
		return err
	}
	var floor eventlog.Offset
	end := messages[0].at
	for _, m := range messages {
		end = max(end, m.at)
	}
	err = s.do(ctx, &op{apply: func(st *claims.State, c *change) (bool, error) {
		if isClosed(w.rewound) { // other messages may have their offsets now
			return false, fmt.Errorf("move delayed messages: %w", eventlog.ErrRewound)
		}
		if c.overtaken { // perhaps it is a queue's definition that has changed
			return false, eventlog.ErrStale
		}
		p := st.Part(s.partition)
		bounds, _ := w.owner.log.Known(s.partition)
		p.Trimmed(bounds.First)
		p.Reach(end + 1)
		e := claims.Edit{Part: p}
		for i, m := range messages {
			if r, there := e.At(m.at); there && r.Fate == claims.Waiting {
				e.Put(m.at, claims.Run{Fate: claims.Done})
				to[i].append(c)
			}
		}
		for name, q := range queues { // these checks refuse the entry if a queue was changed or deleted: a new queue of the same name must not get these messages
			c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: defKey(name), Version: q.def.Load().version})
		}
		e.Apply()
		p.Set(holesBefore(messages, p)...)
		floor = p.Floor
		return true, nil
	}})
	if isStale(err) {
		for _, q := range queues {
			if err := q.redefine(ctx); err != nil && !errors.Is(err, ErrUnknownQueue) {
				return err
			}
		}
	}
	if err != nil {
		return err
	}
	return w.trim(ctx, s, floor)
}

// holesBefore returns, as runs that are done, the offsets before each of these messages at which
// there is no message any more.
func holesBefore(messages []dueMessage, p *claims.Part) (holes []claims.Run) {
	messages = slices.SortedFunc(slices.Values(messages), func(a, b dueMessage) int { return cmp.Compare(a.at, b.at) })
	from := p.Floor
	for _, m := range messages {
		if from = max(from, m.from); from < m.at {
			holes = append(holes, claims.Run{From: from, N: int64(m.at - from), Fate: claims.Done})
		}
		from = max(from, m.at+1)
	}
	return holes
}

// trim deletes a slot's records once all of them were moved.
func (w *wheel) trim(ctx context.Context, s *slot, floor eventlog.Offset) error {
	bounds, _ := w.owner.log.Known(s.partition)
	if floor < bounds.Next || bounds.First >= floor {
		return nil
	}
	if err := w.owner.delayed.unsave(ctx, s.partition, bounds.First, floor); err != nil {
		return err
	}
	return w.owner.log.TrimFound(ctx, w.rewound, eventlog.Trim{Partition: s.partition, Before: floor})[0]
}

// findUnique finds the unique keys that the messages that move hold: one store call per thousand.
// The key's value must get the new place. That put needs no check: only this message can free its
// key, and it leaves its slot once.
func (w *wheel) findUnique(ctx context.Context, p eventlog.Partition, messages []dueMessage, to []preparation, queues map[string]*Queue) error {
	of := make(map[string][]int) // by unique key: the messages that name it
	for i := range to {
		name, _, _ := strings.Cut(headerText(to[i].record, headerTo), "/")
		if q := queues[name]; q != nil {
			if key, _ := q.uniqueNamed(to[i].record); key != "" {
				of[key] = append(of[key], i)
			}
		}
	}
	return w.owner.log.GetAll(ctx, slices.Collect(maps.Keys(of)), func(kv eventlog.KeyValue) error {
		for _, i := range of[kv.Key] {
			name, _, _ := strings.Cut(headerText(to[i].record, headerTo), "/")
			_, token := queues[name].uniqueNamed(to[i].record)
			held, same, err := uniqueIn(kv, token)
			if err != nil {
				return err
			}
			id, _ := ParseID(headerText(to[i].record, HeaderID)) // target put the header there
			if same && held.isAt(MessageID{p, messages[i].at}, id) {
				to[i].unique, to[i].holder = kv.Key, held
			}
		}
		return nil
	})
}

// target returns the partition and the record that a message moves to. It returns none, and the
// message is dropped, if the queue was deleted or purged, or all its topics were deleted.
func (w *wheel) target(ctx context.Context, wheel eventlog.Topic, s *slot, m dueMessage, now claims.Time, queues map[string]*Queue) (none preparation, err error) {
	if m.gone {
		return none, nil
	}
	to := headerText(m.rec, headerTo)
	var added []batch.RecordHeader
	if _, has := header(m.rec, HeaderID); !has {
		added = append(added, batch.RecordHeader{Key: HeaderID, Value: []byte(MessageID{s.partition, m.at}.String())})
	}
	if _, has := header(m.rec, HeaderEnqueued); !has && m.rec.Timestamp >= 0 {
		added = append(added, batch.RecordHeader{Key: HeaderEnqueued, Value: timeText(time.UnixMilli(m.rec.Timestamp))})
	}
	name, id, _ := strings.Cut(to, "/")
	if w.deleted[to] {
		return none, nil
	}
	q, err := w.owner.openAs(ctx, name, id)
	var invalid *eventlog.InvalidError
	switch {
	case errors.Is(err, ErrUnknownQueue), errors.As(err, &invalid), err == nil && q.id != id:
		w.owner.logger.Info("dropping delayed messages: their queue was deleted or purged", "queue", name, "first", MessageID{s.partition, m.at}.String())
		if len(w.deleted) >= deletedMax {
			clear(w.deleted)
		}
		w.deleted[to] = true
		return none, nil
	case err != nil:
		return none, err
	}
	queues[name] = q
	// The timestamp is the time of this move: the topic's retention counts from it, not from when
	// the message was enqueued.
	rec := batch.Record{Timestamp: int64(now), Key: m.rec.Key, Value: m.rec.Value}
	if m.due > now { // on to a slot of a shorter span
		rec.Headers = headersWith(m.rec, nil, append(added, q.delayHeaders(m.due)...)...)
		return preparation{topic: wheel, partition: wheel.Partitions[slotOf(now+openBefore, m.due)], record: rec}, nil
	}
	topic, err := q.topicBack(ctx, priorityOf(m.rec))
	if err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
		return none, err
	}
	if err != nil {
		w.owner.logger.Info("dropping a delayed message: its topic was deleted", "queue", name, "message", MessageID{s.partition, m.at}.String())
		return none, nil
	}
	if _, was := header(m.rec, headerAvailable); !was && m.due > 0 { // this move may be late
		added = append(added, batch.RecordHeader{Key: headerAvailable, Value: timeText(time.UnixMilli(int64(m.due)))})
	}
	added = append(added, batch.RecordHeader{Key: headerTo, Value: []byte(to)}) // for purges: see wasPurged
	rec.Headers = headersWith(m.rec, []string{headerDue}, added...)
	n := publish.Default(&publish.Event{Key: rec.Key}, len(topic.Partitions))
	return preparation{topic: topic, partition: topic.Partitions[n], record: rec}, nil
}
