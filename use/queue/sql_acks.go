package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// Beside knows of acks that workers committed in SQL transactions, and that have not reached the queue's state yet: see Handled.
type Beside interface {
	// Acked lists the messages of a partition that were acknowledged so, for the queue with an id.
	Acked(ctx context.Context, id string, p eventlog.Partition) ([]eventlog.Offset, error)
}

// Handled acknowledges messages whose ack was committed with SQL, whether they are claimed now or not. Errors are those of Ack; a
// message that is done already, or was there before a purge, is an ErrStaleReceipt.
//
// unchanged returns an error when the store is in another incarnation than where the ack was found, for its offset may be another message's then: a
// claim does not tell, since the message need not be claimed. It is asked each time that the queue's state is changed.
func (q *Queue) Handled(ctx context.Context, unchanged func() error, receipts ...string) ([]error, error) {
	return q.answer(ctx, receipts, func(s *state, c *change, g grant) error {
		if err := unchanged(); err != nil {
			return err
		}
		p := s.part(g.partition)
		if r, there := p.at(g.offset); !there || r.fate == done {
			return &StaleReceiptError{Why: "the message is done", Done: true}
		}
		p.resolve(g, run{fate: done})
		return nil
	}, q.keepDone)
}

// Acked reports whether the message of a receipt was acknowledged in a committed SQL transaction that has not reached the queue's
// state yet.
func (q *Queue) Acked(ctx context.Context, receipt string) (bool, error) {
	g, err := q.parse(receipt)
	if errors.Is(err, ErrStaleReceipt) || q.owner.beside == nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	acked, err := q.owner.beside.Acked(ctx, q.id, g.partition)
	return slices.Contains(acked, g.offset), err
}

// OpenID finds a queue by its id: one store call or more if this process has not opened it yet.
func (qs *Queues) OpenID(ctx context.Context, id string) (*Queue, error) {
	qs.mu.Lock()
	for _, q := range qs.opened {
		if q.id == id {
			qs.mu.Unlock()
			return q, nil
		}
	}
	qs.mu.Unlock()
	var found *definition
	err := qs.log.ListAll(ctx, defPrefix, func(kv eventlog.KeyValue) error {
		d, err := parseDefinition(kv)
		if err == nil && d.id == id {
			found = &d
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("look for the queue with id %q: %w", id, err)
	}
	if found == nil {
		return nil, fmt.Errorf("%w: id %q", ErrUnknownQueue, id)
	}
	return qs.adopt(*found)
}

// IDOfReceipt returns the id of the receipt's queue.
func IDOfReceipt(receipt string) string {
	id, _, _ := strings.Cut(receipt, ".")
	return id
}

// hasExpiredLease reports whether a message's lease has ended without an answer.
func (p *part) hasExpiredLease(now Time) bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return r.fate == claimed && r.until <= now })
}

// without drops messages that were acknowledged with SQL.
func without(grants []grant, acked []eventlog.Offset) []grant {
	return slices.DeleteFunc(grants, func(g grant) bool { return slices.Contains(acked, g.offset) })
}
