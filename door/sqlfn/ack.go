package sqlfn

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// Door tells queues which messages transactions acknowledged.
var _ queue.Beside = (*Door)(nil)

// Acked lists the messages of a partition that were acknowledged in committed transactions, but not yet in their queue's state: one
// statement.
func (d *Door) Acked(ctx context.Context, id string, p eventlog.Partition) (acked []eventlog.Offset, err error) {
	err = d.store.Readers().Read(ctx, 0, func(ctx context.Context, conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, `SELECT a."offset" FROM weir.acked a WHERE a.queue = $1 AND a.partition = $2`, id, int64(p))
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

// ack is a row of the inbox that says that a message is done.
type ack struct {
	row     int64
	receipt string
}

// carryAcks acknowledges messages that transactions acknowledged: first in the queue's state, then it deletes their rows. To repeat
// that changes nothing.
func (m *Mover) carryAcks(ctx context.Context, acks []ack) error {
	byQueue := make(map[string][]ack)
	for _, a := range acks {
		id := queue.IDOfReceipt(a.receipt)
		byQueue[id] = append(byQueue[id], a)
	}
	for id, all := range byQueue {
		for some := range slices.Chunk(all, enqueueAtOnce) {
			err := m.carryTo(ctx, id, some)
			if isTransient(err) {
				return err
			}
			if err != nil {
				m.skip("messages acknowledged by SQL are not done yet; tried again later", "queue", id, "messages", len(some), "err", err)
			}
		}
	}
	return nil
}

func (m *Mover) carryTo(ctx context.Context, id string, acks []ack) error {
	ids, receipts := make([]int64, len(acks)), make([]string, len(acks))
	for i, a := range acks {
		ids[i], receipts[i] = a.row, a.receipt
	}
	q, err := m.cfg.Queues.OpenID(ctx, id)
	if err == nil {
		var errs []error
		errs, err = q.Handled(ctx, m.inbox.unchanged, receipts...)
		for _, one := range errs {
			if one != nil && !errors.Is(one, queue.ErrStaleReceipt) {
				err = one
			}
		}
	}
	if err != nil && !errors.Is(err, queue.ErrUnknownQueue) { // a deleted queue needs no acks
		return err
	}
	if err := m.inbox.forgetAcked(ctx, receipts); err != nil {
		return err
	}
	_, err = m.inbox.move(ctx, ids, eventlog.Entry{})
	return err
}

// unchanged returns eventlog.ErrRewound if the log is in another incarnation than the one that the last poll looked into: the offsets of acks found
// there may be those of other messages now.
func (i *inbox) unchanged() error { return i.session.In(i.mark.of.store) }

// forgetAcked deletes the rows of receipts from weir.acked, in the incarnation that the last poll looked into: one statement.
func (i *inbox) forgetAcked(ctx context.Context, receipts []string) error {
	var queues []string
	var partitions, offsets []int64
	for _, receipt := range receipts {
		fields := strings.Split(receipt, ".")
		partition, _ := strconv.ParseInt(fields[1], 10, 64) // weir.ack saw that they are numbers
		offset, _ := strconv.ParseInt(fields[2], 10, 64)
		queues, partitions, offsets = append(queues, fields[0]), append(partitions, partition), append(offsets, offset)
	}
	of := i.mark.of
	err := i.session.Write(ctx, func(ctx context.Context, conn *pgxpool.Conn) error {
		_, err := conn.Exec(ctx, `
			DELETE FROM weir.acked a USING unnest($1::text[], $2::bigint[], $3::bigint[]) AS u(queue, partition, "offset")
			WHERE a.queue = u.queue AND a.partition = u.partition AND a."offset" = u."offset"
			  AND (SELECT weir.unchanged($4, $5, $6, $7))`, queues, partitions, offsets, of.crash, of.store.Server, of.store.Tables, of.store.Epoch)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget %d acks that were carried: %w", len(receipts), err)
	}
	return nil
}
