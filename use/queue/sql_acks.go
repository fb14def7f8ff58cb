package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/chance"
	"github.com/weir-log/weir/use/claims"
)

// Beside knows which messages SQL transactions enqueued, and the acks that workers made in SQL
// transactions and that have not reached the queue's state yet: see Handled. A transaction can only
// acknowledge the claim that is in the queue's state. So once the state has another claim, the
// worker of the claim before can only have acknowledged the message in a transaction that is
// committed or open already.
type Beside interface {
	// Acked lists the messages of a partition that committed transactions acknowledged, for the
	// queue with one of the ids.
	Acked(ctx context.Context, ids []string, p eventlog.Partition) ([]eventlog.Offset, error)
	// Unacked returns those of the messages that no transaction acknowledged, not even one that is
	// open.
	Unacked(ctx context.Context, ids []string, p eventlog.Partition, offsets []eventlog.Offset) ([]eventlog.Offset, error)
	// Enqueued finds the message that a transaction enqueued under an id. at is where it is; waits:
	// it is still on its way to one of the topics, and at is not set. found is false if there is no
	// such message.
	Enqueued(ctx context.Context, topics []eventlog.TopicID, id int64) (at MessageID, waits, found bool, err error)
}

// Handled acknowledges messages whose ack was committed with SQL, whether they are claimed now or
// not, also those that were claimed before the last purge and that the purge left. Errors are those
// of Ack. ErrStaleReceipt: the message is done already, was purged, or was never claimed. In the
// last case Handled does not end it.
//
// unchanged returns an error if the store is not in the incarnation in which the ack was found: the
// offset may be another message's then. No check of a claim would show that, since the message need
// not be claimed. unchanged is called each time that the queue's state is changed.
func (q *Queue) Handled(ctx context.Context, unchanged func() error, receipts ...string) ([]error, error) {
	current := make([]string, len(receipts))
	for i, r := range receipts {
		current[i] = q.current(r)
	}
	return q.answer(ctx, current, func(e *claims.Edit, g claims.Grant, _ preparation, _ *change) error {
		if err := unchanged(); err != nil {
			return err
		}
		switch r, there := e.At(g.Offset); {
		case g.Offset >= e.Part.Next:
			return &StaleReceiptError{Why: "the message was never claimed"}
		case !there || r.Fate == claims.Done:
			return &StaleReceiptError{Why: "the message is done", Done: true}
		}
		e.Put(g.Offset, claims.Run{Fate: claims.Done})
		return nil
	}, q.keepDone)
}

// Acked reports whether the message of a receipt was acknowledged in a committed SQL transaction
// that has not reached the queue's state yet.
func (q *Queue) Acked(ctx context.Context, receipt string) (bool, error) {
	g, err := q.parse(q.current(receipt))
	if errors.Is(err, ErrStaleReceipt) || q.owner.beside == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	acked, err := q.owner.beside.Acked(ctx, q.ids(), g.Partition)
	return slices.Contains(acked, g.Offset), err
}

// ids returns the ids that receipts in SQL transactions may have: the queue's id, and its id before
// the last purge. A transaction that began before the purge may still be open; what was claimed
// with an older id is purged.
func (q *Queue) ids() []string {
	if earlier := q.def.Load().earlier(); earlier != "" {
		return []string{q.id, earlier}
	}
	return []string{q.id}
}

// current returns a receipt from before the last purge as the queue's own.
func (q *Queue) current(receipt string) string {
	if id := IDOfReceipt(receipt); id != "" && id == q.def.Load().earlier() {
		return q.id + receipt[len(id):]
	}
	return receipt
}

// WithID is With for the queue that has an id, or had it before its last purge. It costs one store
// call or more if this process has not opened the queue yet.
func (qs *Queues) WithID(ctx context.Context, id string, do func(*Queue) error) error {
	for tries := 1; ; tries++ {
		q, err := qs.openID(ctx, id)
		if err != nil {
			return err
		}
		if err = do(q); tries == 2 || !errors.Is(err, ErrUnknownQueue) {
			return err
		}
		qs.dropOpened(q)
	}
}

func (qs *Queues) openID(ctx context.Context, id string) (*Queue, error) {
	had := func(d *definition) bool { return d.id == id || d.earlier() == id }
	qs.mu.Lock()
	for _, q := range qs.opened {
		if had(q.def.Load()) {
			qs.mu.Unlock()
			return q, nil
		}
	}
	qs.mu.Unlock()
	heard := qs.news()
	var found *definition
	err := qs.log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		if err == nil && had(&d) {
			found = &d
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("find the queue with id %q: %w", id, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: id %q", ErrUnknownQueue, id)
	}
	if q := qs.adopt(*found, heard); q != nil {
		return q, nil
	}
	q, err := qs.openAs(ctx, found.name, found.id)
	if err == nil && !had(q.def.Load()) {
		err = fmt.Errorf("%w: id %q", ErrUnknownQueue, id)
	}
	return q, err
}

// IDOfReceipt returns the id of the receipt's queue.
func IDOfReceipt(receipt string) string {
	id, _, _ := strings.Cut(receipt, ".")
	return id
}

// withoutAcked drops claims of messages that transactions acknowledged. Only messages that were
// claimed before can be acknowledged. The new claims are in the state already, so the workers of
// earlier claims cannot acknowledge the messages later.
func (q *Queue) withoutAcked(ctx context.Context, p eventlog.Partition, granted []claims.Grant) ([]claims.Grant, error) {
	if q.owner.beside == nil || !slices.ContainsFunc(granted, claims.Grant.Again) {
		return granted, nil
	}
	acked, err := q.owner.beside.Acked(ctx, q.ids(), p)
	if err != nil {
		return nil, fmt.Errorf("read which messages are done: %w", err)
	}
	done := make(map[eventlog.Offset]bool, len(acked))
	for _, o := range acked {
		done[o] = true
	}
	granted = slices.DeleteFunc(granted, func(g claims.Grant) bool { return done[g.Offset] })
	if !slices.ContainsFunc(granted, claims.Grant.Again) {
		return granted, nil
	}
	// If an ack reached the queue's state after these claims but before the call of Acked above,
	// only the state shows it.
	now, err := q.shard(p).fresh(ctx)
	if err != nil {
		return nil, fmt.Errorf("read which messages are done: %w", err)
	}
	part, _ := now.Find(p)
	return slices.DeleteFunc(granted, func(g claims.Grant) bool {
		if !g.Again() {
			return false
		}
		if part == nil {
			return true
		}
		_, err := part.Held(g)
		return err != nil
	}), nil
}

// unacked returns the claims whose messages may leave their partition: those that no transaction
// acknowledged, not even an open one.
func (q *Queue) unacked(ctx context.Context, p eventlog.Partition, granted []claims.Grant) ([]claims.Grant, error) {
	if q.owner.beside == nil || len(granted) == 0 {
		return granted, nil
	}
	offsets := make([]eventlog.Offset, len(granted))
	for i, g := range granted {
		offsets[i] = g.Offset
	}
	free, err := q.owner.beside.Unacked(ctx, q.ids(), p, offsets)
	if err != nil {
		return nil, fmt.Errorf("read which messages are not done: %w", err)
	}
	return slices.DeleteFunc(granted, func(g claims.Grant) bool { return !slices.Contains(free, g.Offset) }), nil
}

// mayLeave is unacked for one claim. A claim that is known to be the first costs no store call:
// nobody else could have acknowledged the message.
func (q *Queue) mayLeave(ctx context.Context, g claims.Grant) (bool, error) {
	if !g.Again() {
		return true, nil
	}
	free, err := q.unacked(ctx, g.Partition, []claims.Grant{g})
	return len(free) > 0, err
}

// takeOver claims messages whose leases ended, as the same attempts, for takenFor: their workers
// cannot acknowledge them any more.
func (q *Queue) takeOver(ctx context.Context, p eventlog.Partition, spent []claims.Grant) (taken []claims.Grant, err error) {
	earliest, latest, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, err
	}
	nonce := chance.Uint32()
	err = q.change(ctx, p, &op{apply: func(s *claims.State, _ *change) (bool, error) {
		taken = nil
		e := claims.Edit{Part: s.Part(p)}
		for _, g := range spent {
			r, err := e.Held(g)
			if err != nil || r.Until > earliest {
				continue // the message was answered, or its lease extended
			}
			r.Until, r.Nonce = latest+claims.Time(takenFor.Milliseconds()), nonce
			e.Put(g.Offset, r)
			g.Until, g.Nonce = r.Until, r.Nonce
			taken = append(taken, g)
		}
		return e.Apply(), nil
	}})
	if err != nil {
		return nil, err
	}
	return q.unacked(ctx, p, taken)
}

// takenFor is how long takeOver holds messages while they become dead letters. Messages that an
// open transaction acknowledged are checked again after this time.
const takenFor = 10 * time.Second

// takenMost bounds how many messages are taken over in one operation.
const takenMost = 1000
