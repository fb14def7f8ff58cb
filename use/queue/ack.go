package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/ledger"
)

// AnswersMax bounds the receipts of one call.
const AnswersMax = 100_000

// Ack acknowledges messages: they are not delivered again. It returns one error for each receipt,
// in their order; nil: done. ErrBadReceipt and ErrStaleReceipt: refused, nothing changed;
// eventlog.ErrUnavailable: certainly not done; eventlog.ErrUnsure: perhaps done, repeat the ack. A
// repeated ack of one claim is a *StaleReceiptError with Done; a receipt that is twice in one call
// has one answer. If the second result is an error, the whole call was refused.
func (q *Queue) Ack(ctx context.Context, receipts ...string) ([]error, error) {
	errs, err := q.answer(ctx, receipts, endClaim, q.keepDone)
	return q.staleIfPurged(ctx, receipts, errs), err
}

// staleIfPurged returns the results of receipts as a process gives them that has heard of a purge:
// ErrStaleReceipt in place of ErrUnknownQueue. It costs store calls only if there are such results.
func (q *Queue) staleIfPurged(ctx context.Context, receipts []string, errs []error) []error {
	gone := func(err error) bool { return errors.Is(err, ErrUnknownQueue) && !errors.Is(err, eventlog.ErrUnsure) }
	if !slices.ContainsFunc(errs, gone) {
		return errs
	}
	now, err := q.owner.Open(ctx, q.name)
	if err != nil { // there is no such queue any more, or nobody knows
		return errs
	}
	for i, receipt := range receipts {
		if _, stale := now.parse(receipt); gone(errs[i]) && stale != nil {
			errs[i] = stale
		}
	}
	return errs
}

// endClaim makes the message of a claim done.
func endClaim(e *claims.Edit, g claims.Grant, _ preparation, _ *change) error {
	_, err := e.Held(g)
	if err == nil {
		e.Put(g.Offset, claims.Run{Fate: claims.Done})
	}
	return err
}

// Extend makes leases last for lease from now on, by the store's clock; that may be shorter than
// before. Errors are those of Ack, and ErrLeaseEnded. A lease that has ended is extended unless
// another worker got the message, or as many other messages are claimed as Settings.Concurrency
// allows.
//
// A lease is counted from when its extension is made, which may be long after the call, and after
// its caller has given up. If the outcome of a first attempt is unknown, the lease does not become
// shorter: its worker may have extended it again meanwhile, through another process.
func (q *Queue) Extend(ctx context.Context, lease time.Duration, receipts ...string) ([]error, error) {
	if lease < leaseMin || lease > leaseMax {
		return nil, &eventlog.InvalidError{What: "lease", Value: lease.String(), Why: fmt.Sprintf("%v to %v are allowed", leaseMin, leaseMax)}
	}
	length := claims.Time(lease.Milliseconds())
	asked, askedLatest, err := q.owner.clock.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("extend leases of queue %q: %w", q.name, err)
	}
	began := time.Now()
	// The store's time, without a call of the store.
	clock := func() (earliest, latest claims.Time) {
		since := time.Since(began)
		return asked + claims.Time(since.Milliseconds()), askedLatest + claims.Time((since + time.Millisecond - 1).Milliseconds())
	}
	// The ends of leases that became longer: for a claims.Grant its claims.Time. An operation may
	// still write here after ctx has ended.
	var ends sync.Map
	errs, err := q.answer(ctx, receipts, func(e *claims.Edit, g claims.Grant, _ preparation, c *change) error {
		r, err := e.Held(g)
		if err != nil {
			return err
		}
		earliest, latest := clock()
		limit := q.def.Load().settings.Concurrency
		if limit > 0 && r.Until <= latest && e.ClaimsBeside(g.Offset, earliest) >= limit {
			return &StaleReceiptError{Why: "its lease ended, and as many other messages are claimed as the queue's concurrency allows"}
		}
		until := latest + length
		if c.maybeDone {
			until = max(until, r.Until)
		}
		ends.Delete(g)
		if until > r.Until {
			ends.Store(g, until)
		}
		r.Until = until
		e.Put(g.Offset, r)
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	errs = q.staleIfPurged(ctx, receipts, errs)
	now, _, err := q.owner.clock.Now(ctx)
	if err != nil { // the change was made
		now, _ = clock()
	}
	if now < askedLatest+length {
		return errs, nil
	}
	// The change was stored late, as can happen while the store is unavailable: see overBefore.
	for i, text := range receipts {
		g, bad := q.parse(text)
		if errs[i] != nil || bad != nil {
			continue
		}
		if end, longer := ends.Load(g); longer && end.(claims.Time) <= now {
			errs[i] = ErrLeaseEnded
		}
	}
	return errs, nil
}

// verdict changes the message of a receipt, or refuses the receipt. It may be called again, on a
// newer state.
type verdict func(*claims.Edit, claims.Grant, preparation, *change) error

// answered is a receipt of a call, and what its change appends.
type answered struct {
	index int // the receipt's index in the call
	grant claims.Grant
	preparation
}

// answer applies one change to each receipt's message; a receipt that is repeated gets the answer
// of the first. prepare may read what a message's change needs. Messages of one partition share
// operations.
func (q *Queue) answer(ctx context.Context, receipts []string, apply verdict, prepare func(context.Context, claims.Grant) (preparation, error)) ([]error, error) {
	if len(receipts) > AnswersMax {
		return nil, &eventlog.InvalidError{What: "number of receipts", Value: fmt.Sprint(len(receipts)), Why: fmt.Sprintf("one call takes at most %d", AnswersMax)}
	}
	errs := make([]error, len(receipts))
	first := make(map[string]int, len(receipts)) // where a receipt is named first
	byPartition := make(map[eventlog.Partition][]answered)
	known, current := q.partitionCheck(), false
	for i, text := range receipts {
		if _, again := first[text]; again {
			continue
		}
		first[text] = i
		g, err := q.parse(text)
		if errors.Is(err, ErrStaleReceipt) && !current { // perhaps this process knows an old definition
			if err := q.redefine(ctx); err != nil {
				return nil, fmt.Errorf("ack or nack messages of queue %q: %w", q.name, err)
			}
			current = true
		}
		if err == nil {
			err = known(ctx, g)
		}
		if errs[i] = err; err == nil {
			byPartition[g.Partition] = append(byPartition[g.Partition], answered{index: i, grant: g})
		}
	}
	var partitions sync.WaitGroup
	for p, items := range byPartition {
		partitions.Go(func() {
			for len(items) > 0 {
				n, err := q.answerSome(ctx, p, items, errs, apply, prepare)
				items = items[n:]
				if err != nil && !ledger.IsRefusal(err) { // the items that are left were not sent
					if errors.Is(err, eventlog.ErrUnsure) {
						err = fmt.Errorf("%w: not sent, because the outcome of the messages before it is unknown: try again", eventlog.ErrUnavailable)
					}
					for _, it := range items {
						errs[it.index] = err
					}
					break
				}
			}
		})
	}
	partitions.Wait()
	for i, text := range receipts {
		errs[i] = errs[first[text]]
	}
	q.wakeClaims() // messages that were given back, or waited for another with their key, may be claimed now
	return errs, nil
}

// answerSome answers the first receipts of a partition in one operation: at most opsMax, and no
// more once their records have opBytesMax. It returns how many receipts it answered, and the error
// of their operation.
func (q *Queue) answerSome(ctx context.Context, p eventlog.Partition, items []answered, errs []error, apply verdict,
	prepare func(context.Context, claims.Grant) (preparation, error)) (n int, err error) {
	var some []answered
	o, holds := &op{}, false
	for n < min(len(items), opsMax) && o.bytes < opBytesMax {
		it := items[n]
		if prepare != nil {
			it.preparation, err = prepare(ctx, it.grant)
			if errors.Is(err, errNoneYet) {
				err = &StaleReceiptError{Why: "the message was never claimed"}
			}
			if errs[it.index] = err; err != nil {
				n++
				continue
			}
		}
		if it.bytes() > 0 && !holds { // it.record is not kept during this wait: the receipt is prepared again afterwards
			select {
			case q.owner.holding <- struct{}{}:
				holds = true
				defer func() { <-q.owner.holding }()
				continue
			case <-ctx.Done():
				return 0, fmt.Errorf("%w: gave up before it was sent (%w)", q.log.Late(time.Time{}), context.Cause(ctx))
			}
		}
		n++
		it.record = ownRecord(it.record)
		o.bytes += it.bytes()
		o.messages++
		some = append(some, it)
	}
	if len(some) == 0 {
		return n, nil
	}
	prepared := make([]*preparation, len(some))
	for i := range some {
		prepared[i] = &some[i].preparation
	}
	if err := q.uniques(ctx, prepared...); err != nil {
		for _, it := range some {
			errs[it.index] = err
		}
		return n, err
	}
	results := make([]error, len(some)) // o.apply must not write to errs: it may still run after ctx has ended
	o.apply = func(s *claims.State, c *change) (bool, error) {
		e := claims.Edit{Part: s.Part(p), All: s}
		for i, it := range some {
			results[i] = c.unsureIfResent(apply(&e, it.grant, it.preparation, c))
			c.refused = c.refused || errors.Is(results[i], ErrStaleReceipt)
			if results[i] == nil {
				it.append(c)
			}
		}
		return e.Apply(), nil
	}
	err = q.change(ctx, p, o)
	for i, it := range some {
		if errs[it.index] = err; err == nil {
			errs[it.index] = results[i]
		}
	}
	return n, err
}

// ownRecord copies a record's bytes: the page that it was read from may be far larger, and would be
// held as long as the record.
func ownRecord(r batch.Record) batch.Record {
	r.Key, r.Value, r.Headers = bytes.Clone(r.Key), bytes.Clone(r.Value), slices.Clone(r.Headers)
	for i := range r.Headers {
		r.Headers[i].Value = bytes.Clone(r.Headers[i].Value)
	}
	return r
}
