package sqlfn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/recovered"
	"github.com/weir-log/weir/use/queue"
)

// Door reports to queues which messages transactions acknowledged.
var _ queue.Beside = (*Door)(nil)

// Acked lists the messages of a partition that were acknowledged in committed transactions, but not
// yet in their queue's state: one statement.
func (d *Door) Acked(ctx context.Context, ids []string, p eventlog.Partition) (acked []eventlog.Offset, err error) {
	err = d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `
			SELECT a."offset" FROM weir.acked a WHERE a.queue = ANY ($1) AND a.partition = $2
			  AND NOT EXISTS (SELECT FROM weir.nacked n WHERE n.queue = a.queue AND n.partition = $2 AND n."offset" = a."offset")
			  AND weir.still($3, $4, $5)`, append([]any{ids, int64(p)}, d.store.Still()...)...)
		if err != nil {
			return err
		}
		acked, err = pgx.CollectRows(rows, pgx.RowTo[eventlog.Offset])
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read which messages of partition %d transactions acknowledged: %w", p, err)
	}
	return acked, nil
}

// Unacked returns those of a partition's messages that no transaction acknowledged, not even an
// open transaction: one statement for each id, which waits up to 10 ms for each message that an
// open transaction acknowledged.
func (d *Door) Unacked(ctx context.Context, ids []string, p eventlog.Partition, offsets []eventlog.Offset) (free []eventlog.Offset, err error) {
	err = d.store.Readers().Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		free = offsets
		for _, id := range ids {
			var left []eventlog.Offset
			if err := conn.QueryRow(ctx, `SELECT weir.unacked($1, $2, $3)`, id, int64(p), free).Scan(&left); err != nil {
				return err
			}
			free = left
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read which messages of partition %d no transaction acknowledged: %w", p, err)
	}
	return free, nil
}

// answer is a row of the inbox that answers for a claimed message. Of Ack, Nack and Extend, only
// one has the message's receipt.
type answer struct {
	Ack    string `json:"ack"`    // receipt: the message is done (functions/ack.sql)
	Nack   string `json:"nack"`   // receipt: the message is given back (functions/nack.sql)
	Error  string `json:"error"`  // of a nack
	Delay  *int64 `json:"delay"`  // of a nack, in milliseconds; nil: the queue's own pause
	Reject bool   `json:"reject"` // of a nack
	Extend string `json:"extend"` // receipt: the message's lease goes on (functions/extend.sql)
	Lease  int64  `json:"lease"`  // of an extension, in milliseconds from now on

	row int64
}

func (a answer) receipt() string { return cmp.Or(a.Ack, a.Nack, a.Extend) }

// call is an answer without its receipt. Answers with equal calls are passed to their queue
// together.
type call struct {
	queue           string // its id
	acks            bool
	errorText       string
	delay, extendBy int64 // milliseconds; delay -1: the queue's own pause
	reject          bool
}

func (a answer) call() call {
	c := call{queue: queue.IDOfReceipt(a.receipt()), acks: a.Ack != "", errorText: a.Error, delay: -1, extendBy: a.Lease, reject: a.Reject}
	if a.Delay != nil {
		c.delay = *a.Delay
	}
	return c
}

// apply passes answers with these receipts to their queue. Its errors are those of queue.Ack.
func (c call) apply(ctx context.Context, q *queue.Queue, unchanged func() error, receipts []string) ([]error, error) {
	switch {
	case c.acks:
		return q.Handled(ctx, unchanged, receipts...)
	case c.extendBy > 0:
		return q.Extend(ctx, time.Duration(c.extendBy)*time.Millisecond, receipts...)
	}
	delay := time.Duration(max(c.delay, 0)) * time.Millisecond
	return q.Nack(ctx, queue.Nack{Error: c.errorText, SetDelay: c.delay >= 0, Delay: delay, Reject: c.reject}, receipts...)
}

// callsAtOnce bounds the calls in progress: each nack may have an error text of its own, and so
// need a call of its own.
const callsAtOnce = 64

// carryAnswers passes answers to their queues: first it changes the queues' state, then it deletes
// the answers' rows. It may be repeated. Stale nacks and extensions are dropped: their message was
// claimed again, or is done. A stale ack is dropped only if its message is done, for the ack was
// committed.
func (m *Mover) carryAnswers(ctx context.Context, answers []answer) error {
	var order []call
	shares := make(map[call][]answer)
	for _, a := range answers {
		c := a.call()
		if shares[c] == nil {
			order = append(order, c)
		}
		shares[c] = append(shares[c], a)
	}
	var calls errgroup.Group
	calls.SetLimit(callsAtOnce)
	var mu sync.Mutex // guards applied, failed, transient and left
	var applied []answer
	var failed, transient error
	left := 0
	for _, c := range order {
		for some := range slices.Chunk(shares[c], enqueueAtOnce) {
			calls.Go(func() error {
				err := recovered.Do(func() error { return m.apply(ctx, c, some) })
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					applied = append(applied, some...)
				case isTransient(err):
					transient = err
				default:
					failed, left = err, left+len(some)
				}
				return nil
			})
		}
	}
	_ = calls.Wait() // their errors are in failed and transient
	for some := range slices.Chunk(applied, enqueueAtOnce) {
		if err := m.dropAnswers(ctx, some); err != nil {
			return err
		}
	}
	if failed != nil {
		m.skip("cannot apply acks, nacks and extensions that came by SQL to their queue; trying again later", "messages", left, "err", failed)
	}
	return transient
}

func (m *Mover) apply(ctx context.Context, c call, some []answer) error {
	receipts := make([]string, len(some))
	for i, a := range some {
		receipts[i] = a.receipt()
	}
	var errs []error
	err := m.cfg.Queues.WithID(ctx, c.queue, func(q *queue.Queue) (err error) {
		errs, err = c.apply(ctx, q, m.inbox.unchanged, receipts)
		for _, one := range errs {
			if errors.Is(one, queue.ErrUnknownQueue) { // it was purged or deleted just now
				err = cmp.Or(err, one)
			}
		}
		return err
	})
	for _, one := range errs {
		var stale *queue.StaleReceiptError
		if errors.Is(one, queue.ErrLeaseEnded) { // repeated, a lease that is shorter than what the store takes would never end
			continue
		}
		if one != nil && !isGone(one) && (!errors.As(one, &stale) || c.acks && !stale.Done) {
			err = one
		}
	}
	if isGone(err) {
		return nil
	}
	return err
}

// isGone reports whether an answer's queue was deleted, or the topic that its message was in: then
// nobody needs the answer. A receipt is bad if the topic of its priority was deleted, because then
// the queue has no such partition.
func isGone(err error) bool {
	return errors.Is(err, queue.ErrUnknownQueue) || errors.Is(err, eventlog.ErrUnknownTopic) || errors.Is(err, queue.ErrBadReceipt)
}

// dropAnswers deletes the rows of answers that were passed to their queues.
func (m *Mover) dropAnswers(ctx context.Context, some []answer) error {
	locked, err := m.inbox.forgetAnswered(ctx, some)
	if err != nil {
		return err
	}
	var ids []int64
	for _, a := range some {
		if a.Nack == "" || !locked[a.Nack] {
			ids = append(ids, a.row)
		}
	}
	if len(ids) > 0 {
		_, err = m.inbox.move(ctx, ids, eventlog.Entry{})
	}
	if err == nil && len(locked) > 0 {
		m.skip("cannot remove nacks by SQL yet: their messages were claimed again, and open transactions have locked them; trying again later", "messages", len(locked))
	}
	return err
}

// unchanged returns eventlog.ErrRewound if the log is in another incarnation than the one that the
// last poll looked into: the offsets of acks found there may be those of other messages now.
func (i *inbox) unchanged() error { return i.session.In(i.mark.of.store) }

// forgetAnswered deletes the rows of acks and nacks, in the incarnation that the last poll looked
// into: one statement. locked are the receipts of nacks whose row is locked by the open transaction
// of a later claim: forgetAnswered does not wait for that transaction.
func (i *inbox) forgetAnswered(ctx context.Context, answers []answer) (locked map[string]bool, err error) {
	var queues []string
	var nacks []*string
	var partitions, offsets []int64
	for _, a := range answers {
		if a.Extend != "" {
			continue // an extension has no row in the tables of acks and nacks
		}
		fields := strings.Split(a.receipt(), ".")
		partition, _ := strconv.ParseInt(fields[1], 10, 64) // weir.parse_receipt saw that they are numbers
		offset, _ := strconv.ParseInt(fields[2], 10, 64)
		queues, partitions, offsets = append(queues, fields[0]), append(partitions, partition), append(offsets, offset)
		var nack *string
		if a.Nack != "" {
			nack = &a.Nack
		}
		nacks = append(nacks, nack)
	}
	if len(queues) == 0 {
		return nil, nil
	}
	of := i.mark.of
	err = i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT locked FROM weir.forget_answered($1, $2, $3, $4) AS locked WHERE weir.unchanged($5, $6, $7, $8)`,
			queues, partitions, offsets, nacks, of.crash, of.store.Server, of.store.Tables, of.store.Epoch)
		if err != nil {
			return err
		}
		receipts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		locked = make(map[string]bool, len(receipts))
		for _, receipt := range receipts {
			locked[receipt] = true
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("forget %d acks and nacks that were carried: %w", len(queues), err)
	}
	return locked, nil
}
