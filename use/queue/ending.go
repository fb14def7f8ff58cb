package queue

import (
	"context"
	"errors"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/ledger"
)

// ending says why a message that was claimed just now is not to be handed out.
type ending struct {
	grant
	why, text string // of its dead letter; "": it gets none
}

// errStays: a transaction that is still open may acknowledge the message. It stays claimed, and a
// later claim finds it.
var errStays = errors.New("the message may not leave the queue yet")

// endAll ends messages that were claimed just now, if their claims are still the last ones. It
// makes one commit for each partition, or one for each opBytesMax of its dead letters.
func (q *Queue) endAll(ctx context.Context, over []ending) error {
	ends := make(map[grant]ending)
	byPartition := make(map[eventlog.Partition][]answered)
	for i, e := range over {
		ends[e.grant] = e
		byPartition[e.partition] = append(byPartition[e.partition], answered{index: i, grant: e.grant})
	}
	errs := make([]error, len(over))
	for p, items := range byPartition {
		for len(items) > 0 {
			n, err := q.answerSome(ctx, p, items, errs, (*edit).end, func(ctx context.Context, g grant) (preparation, error) {
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
		key, err := q.unique(ctx, e.grant)
		return preparation{names: key}, err
	}
	free, err := q.mayLeave(ctx, e.grant)
	if err == nil && !free {
		err = errStays
	}
	if err != nil {
		return preparation{}, err
	}
	before := q.runOf(e.grant)
	text := e.text
	if before.reason != "" {
		text += "; its last attempt failed: " + before.reason
	}
	return q.deadLetter(ctx, e.grant, run{attempt: e.attempt - 1}, e.why, text) // the claim that found it gave it to no worker
}
