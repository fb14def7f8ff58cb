package queue

import (
	"context"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
	"github.com/weir-log/weir/use/ledger"
)

// ending says why a message that was claimed just now is not to be handed out.
type ending struct {
	claims.Grant
	why, text string // the reason and the error of the message's dead letter; why is "" if it gets none
}

// errStays: a transaction that is still open may acknowledge the message. It stays claimed, and a
// later claim finds it.
var errStays = errors.New("the message may not leave the queue yet")

// endAll takes messages that were claimed just now out of the queue, some as dead letters, if their
// claims are still the last ones. It makes one commit for each partition, or one for each opsMax of
// its messages or opBytesMax of its dead letters.
func (q *Queue) endAll(ctx context.Context, over []ending) error {
	ends := make(map[claims.Grant]ending)
	byPartition := make(map[eventlog.Partition][]answered)
	for i, e := range over {
		ends[e.Grant] = e
		byPartition[e.Partition] = append(byPartition[e.Partition], answered{index: i, grant: e.Grant})
	}
	errs := make([]error, len(over))
	for p, items := range byPartition {
		for len(items) > 0 {
			n, err := q.answerSome(ctx, p, items, errs, endClaim, func(ctx context.Context, g claims.Grant) (preparation, error) {
				return q.prepareEnd(ctx, ends[g])
			})
			if err != nil && !ledger.IsRefusal(err) {
				return err
			}
			items = items[n:]
		}
	}
	for _, err := range errs {
		if err != nil && !errors.Is(err, errStays) && !errors.Is(err, ErrStaleReceipt) { // stale: another claim has the message now
			return err
		}
	}
	return nil
}

// prepareEnd makes what is appended when a message ends.
func (q *Queue) prepareEnd(ctx context.Context, e ending) (preparation, error) {
	if e.why == "" {
		key, err := q.unique(ctx, e.Grant)
		return preparation{names: key}, err
	}
	free, err := q.mayLeave(ctx, e.Grant)
	if err == nil && !free {
		err = errStays
	}
	if err != nil {
		return preparation{}, err
	}
	before := q.runOf(e.Grant)
	text := e.text
	if before.Reason != "" {
		text += "; its last attempt failed: " + before.Reason
	}
	return q.deadLetter(ctx, e.Grant, claims.Run{Attempt: e.Attempt - 1}, e.why, text) // the claim that found it gave it to no worker
}
