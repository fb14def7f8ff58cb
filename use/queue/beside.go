package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// Beside knows of acks that were committed elsewhere, in a transaction of a worker's, and are on their way here: see Handled.
type Beside interface {
	// Acked lists the messages of a partition that are done so, for the queue of an id.
	Acked(ctx context.Context, id string, p eventlog.Partition) ([]eventlog.Offset, error)
}

// Handled ends messages that were handled, as was committed elsewhere: whoever has them claimed now, or none. Errors are those of Ack; one that is done
// already, or is of a queue as it was before a purge, is an ErrStaleReceipt.
func (q *Queue) Handled(ctx context.Context, receipts ...string) ([]error, error) {
	return q.answer(ctx, receipts, func(s *state, c *change, g grant) error {
		p := s.part(g.partition)
		if r, there := p.at(g.offset); !there || r.fate == done {
			return &StaleReceiptError{Why: "the message is done", Done: true}
		}
		p.resolve(g, run{fate: done})
		return nil
	}, q.keepDone)
}

// Acked reports whether the message of a receipt was acknowledged in a transaction that committed, and nobody carried that here yet.
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

// OpenID finds a queue by its id: a trip or more where this process has not met it yet.
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

// IDOfReceipt is the id of the queue that a receipt is of.
func IDOfReceipt(receipt string) string {
	id, _, _ := strings.Cut(receipt, ".")
	return id
}

// lapsed reports whether a message's lease has ended without an answer.
func (p *part) lapsed(now Time) bool {
	return slices.ContainsFunc(p.runs, func(r run) bool { return r.fate == claimed && r.until <= now })
}

// without leaves out messages that are done elsewhere.
func without(grants []grant, acked []eventlog.Offset) []grant {
	return slices.DeleteFunc(grants, func(g grant) bool { return slices.Contains(acked, g.offset) })
}
