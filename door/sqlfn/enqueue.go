package sqlfn

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// messageHeader is the name under which a row's headers say that it is a message of a queue that the queue has to place: it is to come later, or
// has a unique key. Its value is an object, which that of no header can be (functions/checked_headers.sql).
const messageHeader = "weir.queue"

// messageMark is how it stands in the text of the headers: within a string the quotes would be escaped.
var messageMark = []byte(`"` + messageHeader + `": {`)

// placing is that value.
type placing struct {
	Name     string `json:"name"`
	Due      int64  `json:"due"` // milliseconds since 1970, by the queues' clock; 0: at once
	Priority int    `json:"priority"`
	Unique   string `json:"unique"`
	Ack      string `json:"ack"` // a receipt: the row is no message, but says that one is done (functions/ack.sql)
}

// isMessage reports whether a row is a delayed or unique message, which its queue must enqueue.
func (r *row) isMessage() bool { return r.group == "" && bytes.Contains(r.headers, messageMark) }

// message parses such a row.
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
	m.Headers, err = parseHeaders(plain)
	return to, m, err
}

// enqueueAtOnce bounds the messages of one queue that are enqueued in one transaction.
const enqueueAtOnce = 500

// moveMessages enqueues the delayed and unique messages of a chunk through their queues, up to enqueueAtOnce of a queue in one
// transaction. Messages of deleted queues are dropped, like events of deleted topics.
func (m *Mover) moveMessages(ctx context.Context, rows []row) error {
	type share struct {
		ids      []int64
		messages []queue.NewMessage
	}
	type target struct {
		queue string
		topic eventlog.TopicID // one of its: a queue of the same name that was made anew with another topic is not meant
	}
	shares := make(map[target]*share)
	var order []target
	var acks []ack
	for i := range rows {
		if !rows[i].isMessage() {
			continue
		}
		to, message, err := rows[i].message()
		if err == nil && m.cfg.Queues == nil {
			err = errors.New("this process runs no queues")
		}
		if err != nil {
			m.skip("messages enqueued by SQL stay in weir.inbox: they cannot be placed; tried again later", "row", rows[i].id, "err", err)
			continue
		}
		if to.Ack != "" {
			acks = append(acks, ack{rows[i].id, to.Ack})
			continue
		}
		at := target{to.Name, rows[i].topic}
		s := shares[at]
		if s == nil {
			s = &share{}
			shares[at], order = s, append(order, at)
		}
		s.ids, s.messages = append(s.ids, rows[i].id), append(s.messages, message)
	}
	for _, at := range order {
		for s := shares[at]; len(s.ids) > 0; {
			n := min(len(s.ids), enqueueAtOnce)
			err := m.enqueue(ctx, at.queue, at.topic, s.ids[:n], s.messages[:n])
			if isTransient(err) {
				return err
			}
			if err != nil {
				m.skip("messages enqueued by SQL stay in weir.inbox: their queue does not take them; tried again later", "queue", at.queue, "messages", n, "err", err)
			}
			s.ids, s.messages = s.ids[n:], s.messages[n:]
		}
	}
	return m.carryAcks(ctx, acks)
}

// enqueue enqueues messages, and deletes their rows from the inbox in the same transaction.
func (m *Mover) enqueue(ctx context.Context, name string, topic eventlog.TopicID, ids []int64, messages []queue.NewMessage) error {
	commit := func(ctx context.Context, e eventlog.Entry) (eventlog.Outcome, error) {
		bases, err := m.inbox.move(ctx, ids, e)
		if err != nil {
			return eventlog.Outcome{}, err
		}
		placed := make([]eventlog.Placed, len(bases))
		for i, base := range bases {
			placed[i] = eventlog.Placed{Base: base, Batch: e.Batches[i]}
		}
		m.log.Committed(m.incarnation.store.Told(), placed)
		return eventlog.Outcome{Base: bases}, nil
	}
	err := m.cfg.Queues.With(ctx, name, func(q *queue.Queue) error { return q.EnqueueWith(ctx, topic, commit, messages...) })
	if errors.Is(err, queue.ErrUnknownQueue) || errors.Is(err, eventlog.ErrUnknownTopic) {
		m.cfg.Logger.Warn("messages enqueued by SQL are dropped: their queue was deleted before they were moved into it", "queue", name, "messages", len(ids))
		_, err = m.inbox.move(ctx, ids, eventlog.Entry{})
	}
	return err
}
