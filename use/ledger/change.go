package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// changesMax bounds how often Change decides, while other changes of the key come first.
const changesMax = 100

// Log is what Change needs of an eventlog.Log.
type Log interface {
	Get(ctx context.Context, key string) (eventlog.KeyValue, error)
	Append(ctx context.Context, e eventlog.Entry) (eventlog.Outcome, error)
}

// ErrUnchanged is returned by a decide function if the key stays as it is.
var ErrUnchanged = errors.New("it stays as it is")

// Change changes what a key holds. decide gets what the key holds now, and returns the key's new
// value (nil: the key is deleted), and what else changes in the same entry. If another change comes
// first, decide is called again; its last call counts. Change returns what the key holds then. An
// error of decide ends it; ErrUnchanged is no error.
//
// After a lost answer Change looks whether the key holds the value. If the key is unchanged, Change
// sends the entry once more: only one of the two can be committed. If another change has come, or
// the answer is lost again, the error is eventlog.ErrUnsure. If two callers may put the same value,
// what else they change must be the same, too; it must have no batches. Of two callers that delete
// the key one commits its batches, and both are told that it is deleted.
func Change(ctx context.Context, log Log, key string, decide func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error)) (eventlog.KeyValue, error) {
	now, err := log.Get(ctx, key)
	if err != nil {
		return now, err
	}
	return ChangeFrom(ctx, log, now, decide)
}

// ChangeFrom is Change of a key that the caller has read, which saves a store call.
func ChangeFrom(ctx context.Context, log Log, now eventlog.KeyValue, decide func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error)) (eventlog.KeyValue, error) {
	for range changesMax {
		next, e, err := entry(now, decide)
		if err != nil {
			return unchanged(now, err)
		}
		_, err = log.Append(ctx, e)
		if err := known(ctx, log, now, next, e, err); !errors.Is(err, eventlog.ErrStale) {
			return next, err
		}
		if now, err = log.Get(ctx, now.Key); err != nil {
			return now, err
		}
	}
	return eventlog.KeyValue{}, fmt.Errorf("%w: other changes came first, %d times", eventlog.ErrUnavailable, changesMax)
}

// Begin is ChangeFrom that only submits the change. The function that it returns waits for it.
// Changes of many keys that begin together share flushes, if the log has Submit.
func Begin(ctx context.Context, log Log, now eventlog.KeyValue, decide func(now eventlog.KeyValue) (value []byte, with eventlog.Entry, err error)) (finish func() (eventlog.KeyValue, error)) {
	next, e, err := entry(now, decide)
	if err != nil {
		return func() (eventlog.KeyValue, error) { return unchanged(now, err) }
	}
	submits, is := log.(interface {
		Submit(ctx context.Context, e eventlog.Entry) *eventlog.Ticket
	})
	if !is {
		return func() (eventlog.KeyValue, error) { return ChangeFrom(ctx, log, now, decide) }
	}
	ticket := submits.Submit(ctx, e)
	return func() (eventlog.KeyValue, error) {
		_, err := ticket.Wait(ctx)
		if err := known(ctx, log, now, next, e, err); !errors.Is(err, eventlog.ErrStale) {
			return next, err
		}
		return Change(ctx, log, now.Key, decide)
	}
}

// entry is the entry that makes a change, and what the key holds then.
func entry(now eventlog.KeyValue, decide func(eventlog.KeyValue) ([]byte, eventlog.Entry, error)) (next eventlog.KeyValue, e eventlog.Entry, err error) {
	value, e, err := decide(now)
	next = eventlog.KeyValue{Key: now.Key, Version: now.Version.Next(), Value: value}
	e.Checks = slices.Insert(e.Checks, 0, eventlog.Check{Key: now.Key, Version: now.Version})
	e.Puts = append(e.Puts, eventlog.Put{Key: now.Key, Version: next.Version, Value: value})
	return next, e, err
}

func unchanged(now eventlog.KeyValue, err error) (eventlog.KeyValue, error) {
	if errors.Is(err, ErrUnchanged) {
		err = nil
	}
	return now, err
}

// known finds out whether an entry that changes a key was committed. err is the outcome of its
// append.
func known(ctx context.Context, log Log, before, after eventlog.KeyValue, e eventlog.Entry, err error) error {
	if !errors.Is(err, eventlog.ErrUnsure) {
		return err
	}
	for unsure := err; ; {
		found, failed := log.Get(ctx, before.Key)
		switch {
		case failed != nil:
			return fmt.Errorf("%w (%w)", unsure, failed)
		case found.Version == after.Version && bytes.Equal(found.Value, after.Value), found.Version == 0 && after.Value == nil:
			return nil
		case found.Version != before.Version:
			return unsure
		case errors.Is(err, eventlog.ErrStale): // something else that it checks has changed: it was not committed, nor will it be
			return err
		}
		_, err = log.Append(ctx, e)
		switch {
		case err == nil, errors.Is(err, eventlog.ErrUnsure):
			return err
		case !errors.Is(err, eventlog.ErrStale):
			return fmt.Errorf("%w (%w)", unsure, err)
		}
	}
}
