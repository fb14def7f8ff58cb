package queue

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/publish"
)

// Later is a place in the log. A message that is to come later is a record in a slot of the wheel: a partition that stands for a span of
// time. When that span begins its messages move to slots of shorter spans, and from a slot of one second to their queue. So a
// million of them are sequential bytes and no keys, and each is moved a handful of times.
//
//	level 0   64 slots of 1 s            level 3   64 slots of 3 days
//	level 1   64 slots of 64 s           level 4   64 slots of 194 days
//	level 2   64 slots of 68 min
//
// What was moved out of a slot is a state as that of a queue's partition, changed in the entry that moves: whoever turns the wheel, a message
// leaves a slot once. One process turns it at a time, for the sake of speed alone.
const (
	wheelTopic  = "__weir_later"
	wheelLevels = 5
	wheelSlots  = 64
	wheelSpan   = Time(1000) // of a slot of level 0, in milliseconds

	wheelStates = "queue/later/"
	turnerKey   = "queue/turner"
)

const (
	// turnerEvery is how often the process that turns the wheel says so, and turnerDead how long others believe it.
	turnerEvery = 2 * time.Second
	turnerDead  = 7 * time.Second
	// wheelLead is how long before its span a slot is emptied, and wheelLate how long after it: a message may become durable after the
	// span of its slot has passed.
	wheelLead = Time(2000)
	wheelLate = Time(10_000)
	// movesMax and movesBytes bound what moves in one change.
	movesMax   = 1000
	movesBytes = 1 << 20
	// dueBytes bounds the messages in memory that wait for their second to pass.
	dueBytes = 64 << 20
	// goneMax bounds what is remembered of queues that are gone.
	goneMax = 1000
	// turnLeast is the least time between two turns: what is due within it moves together.
	turnLeast = 20 * time.Millisecond
)

// Headers of a message in the wheel.
const (
	headerTo  = "weir.queue.to"  // the queue's name and id
	headerDue = "weir.queue.due" // Time, in decimal digits
)

// HeaderTried says how often a message was given out before it was put off.
const HeaderTried = "weir.queue.tried"

// slotOf is the slot where a message that is due then waits now. Slots whose span was a moment ago, or that are emptied at this moment, are
// not used for what is to come.
func slotOf(now, due Time) int32 {
	due = max(due, now)
	span := wheelSpan
	for level := 0; ; level++ {
		ahead := due/span - now/span
		most := wheelSlots - 2 - (wheelLead+wheelLate)/span
		if ahead > most && level < wheelLevels-1 && due/(span*wheelSlots) > now/(span*wheelSlots) {
			span *= wheelSlots
			continue
		}
		at := now/span + min(ahead, most)
		return int32(level*wheelSlots + int(at%wheelSlots))
	}
}

// wheel moves what is due.
type wheel struct {
	owner  *Queues
	slots  map[int32]*slot
	due    dueHeap         // messages that were read and wait for their moment
	bytes  int             // of due
	gone   map[string]bool // queues, as in headerTo, that were purged or deleted; no id ever comes back
	turned time.Time       // when this process last said that it turns the wheel; zero: it does not
	asked  chan struct{}   // holds one value when this process was about to put something into the wheel
}

// slot is a partition of the wheel.
type slot struct {
	*shard
	partition eventlog.Partition
	records   *records
	read      eventlog.Offset // how far its messages were looked at
	started   bool
}

type dueMessage struct {
	due  Time
	slot int32
	at   eventlog.Offset
	rec  batch.Record
}

func (m dueMessage) size() int { return 256 + len(m.rec.Key) + len(m.rec.Value) }

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
	return &wheel{owner: owner, slots: make(map[int32]*slot), gone: make(map[string]bool), asked: make(chan struct{}, 1)}
}

// topic finds the wheel's topic, and makes it if it is not there.
func (w *wheel) topic(ctx context.Context) (eventlog.Topic, error) {
	t, err := w.owner.topic(ctx, wheelTopic, wheelLevels*wheelSlots, 1<<30)
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return t, err
}

// event is a message on its way into the wheel.
func (w *wheel) event(ctx context.Context, q *Queue, m NewMessage, now, due Time) (publish.Event, error) {
	topic, err := w.topic(ctx)
	if err != nil {
		return publish.Event{}, err
	}
	slot := slotOf(now, due)
	return publish.Event{
		Topic: topic.Name, TopicID: topic.ID, Partition: &slot, Key: m.Key, Value: m.Value, Time: m.Time,
		Headers: append(append([]batch.RecordHeader(nil), m.Headers...), q.putOff(due)...),
	}, nil
}

// putOff are the headers of a message of the queue that waits in the wheel.
func (q *Queue) putOff(due Time) []batch.RecordHeader {
	return []batch.RecordHeader{
		{Key: headerTo, Value: []byte(q.name + "/" + q.id)},
		{Key: headerDue, Value: strconv.AppendInt(nil, int64(due), 10)},
	}
}

// run turns the wheel while there is something in it. An empty wheel costs no trips.
func (w *wheel) run(ctx context.Context) {
	changed := w.owner.log.IncarnationChanged()
	for failures := 0; ctx.Err() == nil; {
		if isClosed(changed) { // a queue that is gone may be there again
			changed = w.owner.log.IncarnationChanged()
			w.drop()
			clear(w.gone)
		}
		spans := w.ends() // before the turn: what comes after it wakes
		wait, err := w.turn(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && failures == 0:
			w.owner.logger.Warn("messages that are due wait: they cannot be moved to their queues; trying on", "err", err)
		case err == nil && failures > 0:
			w.owner.logger.Info("messages that are due go on", "failures", failures)
		}
		if err != nil {
			failures++
			w.drop()
			pause(ctx, failures)
			continue
		}
		failures = 0
		w.sleep(ctx, wait, spans)
	}
}

// ends are the places behind everything that is in the wheel; none where there is no wheel.
func (w *wheel) ends() (spans []eventlog.Span) {
	topic, _ := w.known()
	for _, p := range topic.Partitions {
		b, _ := w.owner.log.Known(p)
		spans = append(spans, eventlog.Span{Partition: p, From: b.Next, MaxBytes: 1})
	}
	return spans
}

// sleep waits so long, or until something comes into the wheel past the spans.
func (w *wheel) sleep(ctx context.Context, wait time.Duration, spans []eventlog.Span) {
	if len(spans) == 0 {
		select {
		case <-ctx.Done():
		case <-w.asked:
		case <-time.After(min(wait, turnerEvery)):
		}
		return
	}
	_, err := w.owner.log.Fetch(ctx, eventlog.Want{Spans: spans, MaxBytes: 1, MaxWait: max(wait, time.Millisecond)})
	if err != nil {
		pause(ctx, 1)
	}
}

func wheelStateKey(p eventlog.Partition) string {
	return wheelStates + strconv.FormatInt(int64(p), 10)
}

// has reports whether a partition is one of the wheel's.
func (w *wheel) has(p eventlog.Partition) bool {
	topic, there := w.known()
	return there && number(topic, p) >= 0
}

// known finds the wheel's topic among those that this process has heard of.
func (w *wheel) known() (eventlog.Topic, bool) {
	for _, t := range w.owner.log.Topics() {
		if t.Name == wheelTopic {
			return t, true
		}
	}
	return eventlog.Topic{}, false
}

// turn moves what is due, and says when to come again.
func (w *wheel) turn(ctx context.Context) (wait time.Duration, err error) {
	topic, there := w.known()
	if !there || w.empty(topic) {
		w.drop()
		return time.Minute, nil
	}
	if mine, err := w.lead(ctx); err != nil || !mine {
		w.drop()
		return turnerEvery, err
	}
	now, _, err := w.owner.clock.now(ctx)
	if err != nil {
		return 0, err
	}
	for i := range topic.Partitions {
		if err := w.look(ctx, topic, int32(i), now); err != nil {
			return 0, err
		}
	}
	if err := w.deliver(ctx, topic); err != nil {
		return 0, err
	}
	now, _, err = w.owner.clock.now(ctx)
	if err != nil {
		return 0, err
	}
	return max(time.Duration(w.next(topic, now)-now)*time.Millisecond, turnLeast), nil
}

// next is when there is something to do: a message's moment, or the beginning of the span of a slot that has messages.
func (w *wheel) next(topic eventlog.Topic, now Time) Time {
	next := now + Time(time.Minute.Milliseconds())
	if len(w.due) > 0 {
		next = min(next, w.due[0].due)
	}
	for i, p := range topic.Partitions {
		if b, _ := w.owner.log.Known(p); b.First >= b.Next {
			continue
		} else if s := w.slots[int32(i)]; s != nil && s.read >= b.Next {
			continue // all of it waits in due
		}
		span := spanOf(int32(i))
		at := now / span
		for at%wheelSlots != Time(i%wheelSlots) {
			at++
		}
		next = min(next, at*span-wheelLead)
	}
	return next
}

// spanOf is how long the span of a slot is.
func spanOf(slot int32) Time {
	span := wheelSpan
	for range slot / wheelSlots {
		span *= wheelSlots
	}
	return span
}

func (w *wheel) empty(topic eventlog.Topic) bool {
	for _, p := range topic.Partitions {
		if b, _ := w.owner.log.Known(p); b.First < b.Next {
			return false
		}
	}
	return true
}

// lead reports whether this process turns the wheel. It says so every turnerEvery, and takes over from one that is silent: a trip or two.
func (w *wheel) lead(ctx context.Context) (bool, error) {
	if !w.turned.IsZero() && time.Since(w.turned) < turnerEvery {
		return true, nil
	}
	asked := time.Now()
	kv, err := w.owner.log.Get(ctx, turnerKey)
	if err != nil {
		return false, err
	}
	if string(kv.Value) != w.owner.process && kv.Version > 0 && kv.Age < turnerDead {
		return false, nil
	}
	_, err = w.owner.log.Append(ctx, eventlog.Entry{
		Checks: []eventlog.Check{{Key: turnerKey, Version: kv.Version}},
		Puts:   []eventlog.Put{{Key: turnerKey, Version: kv.Version + 1, Value: []byte(w.owner.process)}},
	})
	if isStale(err) {
		return false, nil
	}
	if err == nil {
		w.turned = asked
	}
	return err == nil, err
}

// drop forgets all that was read: another process may turn the wheel.
func (w *wheel) drop() {
	w.turned, w.due, w.bytes = time.Time{}, nil, 0
	clear(w.slots)
	clear(w.gone)
}

// look reads what is new in a slot whose time has come: messages for higher levels' slots move on at once, the others wait for their moment.
func (w *wheel) look(ctx context.Context, topic eventlog.Topic, i int32, now Time) error {
	p := topic.Partitions[i]
	bounds, _ := w.owner.log.Known(p)
	if bounds.First >= bounds.Next {
		delete(w.slots, i)
		return nil
	}
	s := w.slots[i]
	if s == nil || s.partition != p { // the topic may have been deleted and made anew
		s = &slot{
			shard:     &shard{owner: w.owner, what: fmt.Sprintf("slot %d of the wheel", i), key: wheelStateKey(p)},
			partition: p, records: w.owner.records,
		}
		w.slots[i] = s
	}
	if !w.current(i, now) && s.started {
		return nil
	}
	known, err := s.get(ctx)
	if err != nil {
		return err
	}
	mine := *known.clone().part(p)
	mine.trimmed(bounds.First)
	if !s.started {
		s.started, s.read = true, mine.floor
	}
	if !w.current(i, now) {
		// This process did not turn the wheel before. Is there something that the one before left behind?
		if mine.floor >= bounds.Next {
			return w.trim(ctx, s, mine.floor)
		}
		rec, err := s.records.read(ctx, p, mine.floor)
		if err != nil && !errors.Is(err, errNoRecord) && !errors.Is(err, errUnreadable) {
			return err
		}
		if err == nil && !w.current(slotOf(now, dueOf(rec)), now) {
			return nil
		}
	}
	var moves []dueMessage
	bytes := 0
	for s.read < bounds.Next && w.bytes < dueBytes {
		rec, err := s.records.read(ctx, p, s.read)
		at := s.read
		s.read++
		if errors.Is(err, errUnreadable) {
			w.owner.logger.Error("a delayed message cannot be read, and is passed over", "message", MessageID{p, at}.String(), "err", err)
			continue
		}
		if errors.Is(err, errNoRecord) {
			continue
		}
		if err != nil {
			return err
		}
		if r, there := mine.at(at); there && r.fate == done {
			continue
		}
		m := dueMessage{due: dueOf(rec), slot: i, at: at, rec: rec}
		if to := slotOf(now+wheelLead, m.due); to == i || to < wheelSlots && m.due < now+2*wheelSpan {
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
	return w.move(ctx, topic, s, moves)
}

// current reports whether a slot's span has begun, or is about to, or has just passed.
func (w *wheel) current(i int32, now Time) bool {
	span := spanOf(i)
	for at := max(now-wheelLate, 0) / span; at <= (now+wheelLead)/span; at++ {
		if at%wheelSlots == Time(i%wheelSlots) {
			return true
		}
	}
	return false
}

func dueOf(rec batch.Record) Time {
	for _, h := range rec.Headers {
		if h.Key == headerDue {
			if due, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				return Time(due)
			}
		}
	}
	return 0 // it was not put here by us, and leaves at once
}

// deliver moves the messages whose moment has come to their queues.
func (w *wheel) deliver(ctx context.Context, topic eventlog.Topic) error {
	now, _, err := w.owner.clock.now(ctx)
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
			n := min(len(messages), movesMax)
			if err := w.move(ctx, topic, s, messages[:n]); err != nil {
				return err
			}
			messages = messages[n:]
		}
	}
	return nil
}

// move takes messages out of a slot, and puts each where it belongs now: into its queue, or into another slot.
func (w *wheel) move(ctx context.Context, topic eventlog.Topic, s *slot, messages []dueMessage) error {
	if len(messages) == 0 {
		return nil
	}
	now, _, err := w.owner.clock.now(ctx)
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
	var floor eventlog.Offset
	end := messages[0].at
	for _, m := range messages {
		end = max(end, m.at)
	}
	err = s.do(ctx, &op{apply: func(st *state, c *change) (bool, error) {
		p := st.part(s.partition)
		bounds, _ := w.owner.log.Known(s.partition)
		p.trimmed(bounds.First)
		if more := int64(end + 1 - p.next); more > 0 {
			p.runs = append(p.runs, run{n: more, fate: waiting})
			p.next = end + 1
		}
		for i, m := range messages {
			if r, there := p.at(m.at); there && r.fate == waiting {
				p.set(m.at, run{n: 1, fate: done})
				to[i].append(c)
			}
		}
		for name, q := range queues { // a queue that is deleted meanwhile gets nothing, nor does its namesake
			c.entry.Checks = append(c.entry.Checks, eventlog.Check{Key: defKey(name), Version: q.def.Load().version})
		}
		p.tidy()
		floor = p.floor
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

// trim lets go of what was moved out of a slot, when that is all.
func (w *wheel) trim(ctx context.Context, s *slot, floor eventlog.Offset) error {
	if bounds, _ := w.owner.log.Known(s.partition); floor < bounds.Next || bounds.First >= floor {
		return nil
	}
	return w.owner.log.Trim(ctx, s.partition, floor)
}

// target says where a message goes when it leaves its slot. One whose queue is gone goes nowhere.
func (w *wheel) target(ctx context.Context, wheel eventlog.Topic, s *slot, m dueMessage, now Time, queues map[string]*Queue) (none preparation, err error) {
	var to string
	headers := make([]batch.RecordHeader, 0, len(m.rec.Headers)+1)
	hasID, hasTime := false, false
	for _, h := range m.rec.Headers {
		switch h.Key {
		case headerTo:
			to = string(h.Value)
			continue
		case headerDue:
			continue
		case HeaderID:
			hasID = true
		case HeaderEnqueued:
			hasTime = true
		}
		headers = append(headers, h)
	}
	if !hasID {
		headers = append(headers, batch.RecordHeader{Key: HeaderID, Value: []byte(MessageID{s.partition, m.at}.String())})
	}
	if !hasTime && m.rec.Timestamp >= 0 {
		headers = append(headers, batch.RecordHeader{Key: HeaderEnqueued, Value: []byte(time.UnixMilli(m.rec.Timestamp).UTC().Format(time.RFC3339Nano))})
	}
	name, id, _ := strings.Cut(to, "/")
	if w.gone[to] {
		return none, nil
	}
	q, err := w.owner.openAs(ctx, name, id)
	var invalid *eventlog.InvalidError
	switch {
	case errors.Is(err, ErrUnknownQueue), errors.As(err, &invalid), err == nil && q.id != id:
		w.owner.logger.Info("messages of a queue that is gone are dropped", "queue", name, "first", MessageID{s.partition, m.at}.String())
		if len(w.gone) >= goneMax {
			clear(w.gone)
		}
		w.gone[to] = true
		return none, nil
	case err != nil:
		return none, err
	}
	queues[name] = q
	// The record is as old as its place: the topic's retention counts from here.
	rec := batch.Record{Timestamp: int64(now), Key: m.rec.Key, Value: m.rec.Value, Headers: headers}
	if m.due > now { // on to a slot of a shorter span
		rec.Headers = append(rec.Headers, q.putOff(m.due)...)
		return preparation{topic: wheel, partition: wheel.Partitions[slotOf(now+wheelLead, m.due)], record: rec}, nil
	}
	topic, err := q.topicFor(ctx, priorityOf(m.rec))
	if err != nil && !errors.Is(err, eventlog.ErrUnknownTopic) {
		return none, err
	}
	if err != nil {
		w.owner.logger.Info("a message of a topic that is gone is dropped", "queue", name, "message", MessageID{s.partition, m.at}.String())
		return none, nil
	}
	rec.Headers = append(rec.Headers, batch.RecordHeader{Key: headerTo, Value: []byte(to)}) // for purges: see wasPurged
	n := publish.Default(&publish.Event{Key: rec.Key}, len(topic.Partitions))
	return preparation{topic: topic, partition: topic.Partitions[n], record: rec}, nil
}
