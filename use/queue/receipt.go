package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// receiptMax bounds the text of a receipt.
const receiptMax = 128

// receipt is the text of a grant: the queue's id, partition, offset, attempt and nonce. The nonce
// is random or, for a claim with an ID, made from the ID, so that a receipt cannot be guessed.
func (q *Queue) receipt(g claims.Grant) string {
	return fmt.Sprintf("%s.%d.%d.%d.%08x", q.id, g.Partition, g.Offset, g.Attempt, g.Nonce)
}

func (q *Queue) parse(receipt string) (g claims.Grant, err error) {
	bad := func(why string) (claims.Grant, error) {
		return claims.Grant{}, fmt.Errorf("%w: %q: %s", ErrBadReceipt, shorten(receipt, receiptMax), why)
	}
	fields := strings.Split(receipt, ".")
	if len(receipt) > receiptMax || len(fields) != 5 {
		return bad("send the receipt exactly as it came with the message")
	}
	if fields[0] != q.id {
		return claims.Grant{}, &StaleReceiptError{Why: fmt.Sprintf("it does not belong to queue %q: the queue was purged, or deleted and created again, or the receipt is of another queue", q.name)}
	}
	partition, err1 := strconv.ParseInt(fields[1], 10, 64)
	offset, err2 := strconv.ParseInt(fields[2], 10, 64)
	attempt, err3 := strconv.ParseInt(fields[3], 10, 32)
	nonce, err4 := strconv.ParseUint(fields[4], 16, 32)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || offset < 0 || attempt < 1 {
		return bad("send the receipt exactly as it came with the message")
	}
	return claims.Grant{Partition: eventlog.Partition(partition), Offset: eventlog.Offset(offset), Attempt: int32(attempt), Nonce: uint32(nonce)}, nil
}

// partitionCheck returns a check that refuses receipts with unknown partitions. Another process may
// have added partitions or topics: the check reads the queue and all topics again first, four store
// calls, once for all receipts.
func (q *Queue) partitionCheck() func(context.Context, claims.Grant) error {
	asked := false
	return func(ctx context.Context, g claims.Grant) error {
		for {
			topics, err := q.levels(ctx)
			if err != nil {
				return err
			}
			if _, has := topicOf(topics, g.Partition); has {
				return nil
			}
			if asked {
				return fmt.Errorf("%w: queue %q has no partition %d", ErrBadReceipt, q.name, g.Partition)
			}
			asked = true
			if err := q.redefine(ctx); err != nil {
				return err
			}
			if err := q.log.RefreshTopics(ctx); err != nil {
				return err
			}
		}
	}
}

// MessageID identifies a message all its life: the partition, unique in the store, and the offset
// where it was first enqueued.
type MessageID struct {
	Partition eventlog.Partition
	Offset    eventlog.Offset
}

func (id MessageID) String() string { return fmt.Sprintf("%d-%d", id.Partition, id.Offset) }

// ParseID reads a MessageID's text.
func ParseID(text string) (id MessageID, err error) {
	partition, offset, found := strings.Cut(text, "-")
	p, err1 := strconv.ParseInt(partition, 10, 64)
	o, err2 := strconv.ParseInt(offset, 10, 64)
	if !found || err1 != nil || err2 != nil || p < 0 || o < 0 {
		return id, &eventlog.InvalidError{What: "message id", Value: shorten(text, 64), Why: `it must be a partition and an offset, as in "4-1017"`}
	}
	return MessageID{eventlog.Partition(p), eventlog.Offset(o)}, nil
}
