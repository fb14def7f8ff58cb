package queue

import (
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

var (
	// ErrUnknownQueue: there is no queue of this name, or the caller's Queue is not the one of this
	// name any more, because that was purged or deleted.
	ErrUnknownQueue = errors.New("unknown queue")
	// ErrQueueExists: a queue of this name is there already.
	ErrQueueExists = errors.New("queue exists")
	// ErrQueueDiffers: the queue exists, and differs from what Ensure asked for.
	ErrQueueDiffers = errors.New("the queue exists and differs")
	// ErrUnknownSchedule: the queue has no schedule of this name.
	ErrUnknownSchedule = errors.New("unknown schedule")
	// ErrStaleReceipt: the receipt's claim is over, or the receipt is of another queue. Nothing
	// changed. The error is a *StaleReceiptError.
	ErrStaleReceipt = claims.ErrStale
	// ErrBadReceipt: the text is not a receipt, or it names a partition that the queue does not
	// have.
	ErrBadReceipt = errors.New("bad receipt")
	// ErrLeaseEnded: a lease ended again before its extension was stored. Extend it again: that
	// works unless another worker got the message.
	ErrLeaseEnded = fmt.Errorf("%w: the lease ended again before its extension was stored", eventlog.ErrUnavailable)
)

// StaleReceiptError says why a receipt changes nothing.
type StaleReceiptError = claims.StaleError
