package sqlfn

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// messageHeader is the name of a header that marks a row as a message that its queue has to place
// (it is delayed, or has a unique key) or as an answer. Its value is an object; the value of no
// other header can be an object (functions/checked_headers.sql).
const messageHeader = "weir.queue"

// messageMark is how messageHeader appears in the text of the headers: within a string the quotes
// would be escaped.
var messageMark = []byte(`"` + messageHeader + `": {`)

// placing is the value of messageHeader.
type placing struct {
	Name     string `json:"name"`
	Due      int64  `json:"due"` // milliseconds since 1970, by the queues' clock; 0: immediately
	Priority int    `json:"priority"`
	Unique   string `json:"unique"`
	answer
}

// isMessage reports whether a row is a delayed or unique message, which its queue must enqueue, or
// an answer.
func (r *row) isMessage() bool { return r.group == "" && bytes.Contains(r.headers, messageMark) }

// message parses a row that isMessage reports.
func (r *row) message() (to placing, m queue.NewMessage, err error) {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(r.headers, &object); err != nil {
		return to, m, fmt.Errorf("headers %s: %w", r.headers, err)
	}
	if err := json.Unmarshal(object[messageHeader], &to); err != nil {
		return to, m, fmt.Errorf("headers %s: %w", r.headers, err)
	}
	delete(object, messageHeader)
	plain, err := json.Marshal(object)
	if err != nil {
		return to, m, err
	}
	m = queue.NewMessage{Key: r.key, Value: r.value, Time: r.time, Priority: to.Priority, Unique: to.Unique}
	if to.Due > 0 {
		m.At = time.UnixMilli(to.Due)
	}
	m.Headers, err = publish.ParseHeaders(plain)
	return to, m, err
}

var keySeed = maphash.MakeSeed()

// keyHash is a hash of a row's topic and key. Rows with the same hash keep their order; two keys
// may have the same hash.
func (r *row) keyHash() uint64 {
	var h maphash.Hash
	h.SetSeed(keySeed)
	h.Write(r.topic[:])
	h.Write(r.key)
	return h.Sum64()
}

// inOrder cuts a chunk so that plain rows, which are moved first, do not overtake an earlier
// message of the same key that its queue has to place.
func inOrder(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		start, placed := 0, make(map[uint64]bool)
		for i := range rows {
			r := &rows[i]
			if r.key == nil || r.group != "" {
				continue
			}
			if r.isMessage() {
				if to, _, err := r.message(); err == nil && to.Due == 0 {
					placed[r.keyHash()] = true
				}
			} else if len(placed) > 0 && placed[r.keyHash()] {
				if !yield(rows[start:i]) {
					return
				}
				start = i
				clear(placed)
			}
		}
		yield(rows[start:])
	}
}

// heldMax bounds the memory of keys with skipped rows: messages of further keys do not wait.
const heldMax = 100_000

// hold makes later messages of a skipped row's key wait.
func (m *Mover) hold(r *row) {
	if r.key != nil && len(m.held) < heldMax {
		m.held[r.keyHash()] = true
	}
}

// holds reports whether a row has to wait for a skipped one of its key. An event that names its
// partition waits only for skipped rows of that partition.
func (m *Mover) holds(r *row) bool {
	return len(m.held) > 0 && r.key != nil && (r.partition < 0 || r.isMessage()) && m.held[r.keyHash()]
}

// enqueueAtOnce bounds the messages of one queue that are enqueued in one transaction.
const enqueueAtOnce = 500

// moveMessages enqueues the delayed and unique messages of a chunk through their queues, up to
// enqueueAtOnce of a queue in one transaction. Messages of deleted queues are dropped, like events
// of deleted topics. Those that a queue refuses stay in the inbox.
func (m *Mover) moveMessages(ctx context.Context, rows []row) error {
	type target struct {
		queue string
		topic eventlog.TopicID // one of the queue's topics: a new queue of the same name with another topic is not meant
	}
	shares := make(map[target][]pending)
	var order []target
	var answers []answer
	for i := range rows {
		if !rows[i].isMessage() {
			continue
		}
		to, message, err := rows[i].message()
		if err == nil && m.cfg.Queues == nil {
			err = errors.New("this process runs no queues")
		}
		if err != nil {
			m.skip("cannot move messages enqueued by SQL into their queue; they stay in weir.inbox; trying again later", "row", rows[i].id, "err", err)
			continue
		}
		if to.receipt() != "" {
			to.row = rows[i].id
			answers = append(answers, to.answer)
			continue
		}
		at := target{to.Name, rows[i].topic}
		if shares[at] == nil {
			order = append(order, at)
		}
		shares[at] = append(shares[at], pending{&rows[i], message})
	}
	for _, at := range order {
		for some := range slices.Chunk(shares[at], enqueueAtOnce) {
			if err := m.enqueueSome(ctx, at.queue, at.topic, some); err != nil {
				return err
			}
		}
	}
	return m.carryAnswers(ctx, answers)
}

// pending is a row that is a message, and the message. A delayed message has no order among the
// messages of its key.
type pending struct {
	row     *row
	message queue.NewMessage
}

func (p pending) inOrder() bool { return p.message.At.IsZero() }

// enqueueSome enqueues messages of a queue, without those that have to wait for a skipped one of
// their key. If the queue refuses them together, it enqueues each by itself; those that are refused
// then stay in the inbox.
func (m *Mover) enqueueSome(ctx context.Context, name string, topic eventlog.TopicID, some []pending) error {
	waits := func(p pending) bool { return p.inOrder() && m.holds(p.row) }
	some = slices.DeleteFunc(some, waits)
	if len(some) == 0 {
		return nil
	}
	err := m.enqueue(ctx, name, topic, some)
	if err == nil || isTransient(err) {
		return err
	}
	var refused []pending
	var why error // of the first one
	for _, p := range some {
		if waits(p) { // for one that was refused just now
			continue
		}
		if len(some) > 1 {
			err = m.enqueue(ctx, name, topic, []pending{p})
		}
		if isTransient(err) {
			break
		}
		if err == nil {
			continue
		}
		refused, why = append(refused, p), cmp.Or(why, err)
		if p.inOrder() {
			m.hold(p.row)
		}
	}
	if len(refused) > 0 { // also if the loop ended early: without skip nothing would end the wait of held keys
		m.skip("a queue refuses messages enqueued by SQL; they stay in weir.inbox, and later messages with the same keys wait for them; trying again later",
			"queue", name, "messages", len(refused), "row", refused[0].row.id, "err", why)
	}
	if isTransient(err) {
		return err
	}
	return nil
}

// enqueue enqueues messages, and deletes their rows from the inbox in the same transaction.
func (m *Mover) enqueue(ctx context.Context, name string, topic eventlog.TopicID, some []pending) error {
	ids, messages := make([]int64, len(some)), make([]queue.NewMessage, len(some))
	for i, p := range some {
		ids[i], messages[i] = p.row.id, p.message
	}
	commit := func(ctx context.Context, e eventlog.Entry, to []queue.Going) (eventlog.Outcome, error) {
		var runs []enqueuedRun
		for i, p := range some {
			if p.row.wanted {
				runs = addRun(runs, p.row.id, to[i], p.message.At)
			}
		}
		bases, err := m.inbox.move(ctx, ids, e, runs...)
		if err != nil {
			return eventlog.Outcome{}, err
		}
		placed := make([]eventlog.Placed, len(bases))
		for i, base := range bases {
			placed[i] = eventlog.Placed{Base: base, Batch: e.Batches[i]}
		}
		m.log.Committed(m.incarnation.store.InMark(), placed)
		return eventlog.Outcome{Base: bases}, nil
	}
	err := m.cfg.Queues.With(ctx, name, func(q *queue.Queue) error { return q.EnqueueWith(ctx, topic, commit, messages...) })
	gone := errors.Is(err, queue.ErrUnknownQueue)
	if errors.Is(err, eventlog.ErrUnknownTopic) { // which topic? Perhaps that of another priority
		_, found := m.log.TopicByID(topic)
		gone = errors.Is(found, eventlog.ErrUnknownTopic)
	}
	if gone {
		if waits, err := m.inbox.asksFor(ctx, name); err != nil || waits {
			if err == nil {
				m.skip("what SQL enqueued waits in weir.inbox, because its queue is not created; SELECT * FROM weir.creations says why", "queue", name, "messages", len(ids))
			}
			return err
		}
		m.cfg.Logger.Warn("messages enqueued by SQL are dropped: their queue, or its topic for their priority, was deleted before they were moved into it", "queue", name, "messages", len(ids))
		_, err = m.inbox.move(ctx, ids, eventlog.Entry{})
	}
	return err
}
