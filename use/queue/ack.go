package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// AnswersMax bounds the receipts of one call.
const AnswersMax = 100_000

// Ack acknowledges messages: they are not delivered again. It returns one error for each receipt, in their order; nil: done.
// ErrBadReceipt and ErrStaleReceipt: refused, nothing changed; eventlog.ErrUnavailable: certainly not done; eventlog.ErrUnsure:
// perhaps done, repeat the ack. A repeated ack of one claim is a *StaleReceiptError with Done. The second result refuses the whole
// call.
func (q *Queue) Ack(ctx context.Context, receipts ...string) ([]error, error) {
	return q.answer(ctx, receipts, func(s *state, c *change, g grant) error {
		p := s.part(g.partition)
		if _, err := p.held(g); err != nil {
			return err
		}
		p.resolve(g, run{fate: done})
		return nil
	}, q.keepDone)
}

// Extend makes leases end so long after now, by the store's clock. Errors are those of Ack.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, receipts ...string) ([]error, error) {
	if lease < leaseMin || lease > leaseMax {
		return nil, &eventlog.InvalidError{What: "lease", Value: lease.String(), Why: fmt.Sprintf("%v to %v are allowed", leaseMin, leaseMax)}
	}
	_, latest, err := q.owner.clock.now(ctx)
	if err != nil {
		return nil, fmt.Errorf("extend leases of queue %q: %w", q.name, err)
	}
	until := latest + Time(lease.Milliseconds())
	return q.answer(ctx, receipts, func(s *state, _ *change, g grant) error {
		p := s.part(g.partition)
		r, err := p.held(g)
		if err != nil {
			return err
		}
		r.until = until
		p.resolve(g, r)
		return nil
	}, nil)
}

// answer applies one change to each receipt's message. Messages of one partition share one operation. prepare runs first, and may
// read what a message's change needs.
func (q *Queue) answer(ctx context.Context, receipts []string, apply func(*state, *change, grant) error, prepare func(context.Context, grant) (preparation, error)) ([]error, error) {
	if len(receipts) > AnswersMax {
		return nil, &eventlog.InvalidError{What: "number of receipts", Value: fmt.Sprint(len(receipts)), Why: fmt.Sprintf("one call takes %d at most", AnswersMax)}
	}
	errs := make([]error, len(receipts))
	type item struct {
		index int
		grant grant
		preparation
	}
	byPartition := make(map[eventlog.Partition][]item)
	known, current := q.partitionCheck(), false
	for i, text := range receipts {
		g, err := q.parse(text)
		if errors.Is(err, ErrStaleReceipt) && !current { // or is it the queue that this process knows?
			if err := q.redefine(ctx); err != nil {
				return nil, fmt.Errorf("answer for messages of queue %q: %w", q.name, err)
			}
			current = true
		}
		if err == nil {
			err = known(ctx, g)
		}
		if err != nil {
			errs[i] = err
			continue
		}
		it := item{index: i, grant: g}
		if prepare != nil {
			it.preparation, err = prepare(ctx, g)
			if errors.Is(err, errNoneYet) {
				err = &StaleReceiptError{Why: "the message was never claimed"}
			}
			if errs[i] = err; err != nil {
				continue
			}
		}
		byPartition[g.partition] = append(byPartition[g.partition], it)
	}
	type answered struct {
		items []item
		err   error
	}
	answers := make(chan answered, len(byPartition))
	for p, items := range byPartition {
		o := &op{}
		o.apply = func(s *state, c *change) (changed bool, _ error) {
			stale := false
			for _, it := range items {
				err := c.unsureIfResent(apply(s, c, it.grant))
				stale = stale || errors.Is(err, ErrStaleReceipt)
				errs[it.index] = err
				if err == nil {
					changed = true
					it.append(c)
				}
			}
			o.stale = stale
			return changed, nil
		}
		for _, it := range items {
			o.bytes += it.bytes()
		}
		go func() { answers <- answered{items, q.change(ctx, p, o)} }()
	}
	var late error
	for range len(byPartition) {
		a := <-answers
		if a.err == nil {
			continue
		}
		if errors.Is(a.err, eventlog.ErrUnsure) && ctx.Err() != nil {
			late = a.err // the operation may still write its results: those are not ours to read
			continue
		}
		for _, it := range a.items {
			errs[it.index] = a.err
		}
	}
	if late != nil {
		all := make([]error, len(receipts))
		for i := range all {
			all[i] = late
		}
		return all, nil
	}
	q.wakeClaims() // what was given back, or waited for a key, may be claimed now
	return errs, nil
}
