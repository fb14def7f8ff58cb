package ledger

import (
	"context"

	"github.com/weir-log/weir/eventlog"
)

// Turn takes a turn of work that any process may do, but one at a time is enough, and reports
// whether this process has it. The turn is free if there is no such key, or if the function free
// says so of what the key holds. The process that takes the turn puts the key, so that the key's
// age shows how long ago that was. See Change for lost answers: if every process puts the same
// value, two may then have one turn.
func Turn(ctx context.Context, log Log, key string, value []byte, free func(now eventlog.KeyValue) bool) (mine bool, err error) {
	_, err = Change(ctx, log, key, func(now eventlog.KeyValue) (_ []byte, with eventlog.Entry, err error) {
		if mine = now.Version == 0 || free(now); !mine {
			err = ErrUnchanged
		}
		return value, with, err
	})
	return mine && err == nil, err
}

// Upkeep is a Log whose entries go before those of clients, see eventlog.Log.SubmitUpkeep.
type Upkeep struct{ *eventlog.Log }

// Append is SubmitUpkeep, and waits until the entry is durable.
func (u Upkeep) Append(ctx context.Context, e eventlog.Entry) (eventlog.Outcome, error) {
	return u.SubmitUpkeep(ctx, e).Wait(ctx)
}
