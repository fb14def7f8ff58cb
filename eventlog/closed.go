package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ClosedKey is there while the store is closed: no log opens it, and a log that has it open writes
// nothing more. Its value is a Closed.
const ClosedKey = EpochKey + "/closed"

// ErrStoreClosed: the store is closed, because it was copied to another one, or is a copy that is
// not complete. It matches ErrUnavailable, too: certainly nothing happened.
var ErrStoreClosed = fmt.Errorf("%w: the store is closed", ErrUnavailable)

// Closed says why a store is closed.
type Closed struct {
	By  string `json:"by"`  // the id of what closed it
	Why string `json:"why"` // for people: what happened, and what to do
}

// FindClosed returns why a store is closed, and the version of ClosedKey; the version is 0 if the
// store is open. It refuses a store that needs what this weir does not know. No log may use the
// Store value that is passed to FindClosed, CheckOpen or CloseStore: the writes of the log would
// then belong to the incarnation that FindClosed finds.
func FindClosed(ctx context.Context, store Store) (Closed, Version, error) {
	closed, _, err := findMarksNow(ctx, store)
	if err != nil || closed.Version == 0 {
		return Closed{}, 0, err
	}
	why, err := parseClosed(closed)
	return why, closed.Version, err
}

// findMarksNow is findMarks in the incarnation that the store is in now.
func findMarksNow(ctx context.Context, store Store) (closed, shard KeyValue, err error) {
	closed, shard, err = findMarks(ctx, store)
	for range enterMax {
		if !errors.Is(err, ErrRewound) {
			break
		}
		if _, _, err = store.Changes(ctx, Mark{}); err == nil {
			closed, shard, err = findMarks(ctx, store)
		}
	}
	return closed, shard, err
}

// FindShardMark returns what a store has under ShardKey, which a set of shards hides; version 0:
// nothing. It refuses a store that needs what this weir does not know.
func FindShardMark(ctx context.Context, store Store) (KeyValue, error) {
	_, shard, err := findMarks(ctx, store)
	return shard, err
}

// marksMost bounds how many keys about the store as a whole are read: there are three under
// EpochKey, and later versions may have more.
const marksMost = 16

// findMarks reads ClosedKey and ShardKey, and checks NeedsKey, in one call.
func findMarks(ctx context.Context, store Store) (closed, shard KeyValue, err error) {
	kvs, err := store.List(ctx, EpochKey+"/", "", marksMost)
	for _, kv := range kvs {
		switch kv.Key {
		case ClosedKey:
			closed = kv
		case NeedsKey:
			err = checkNeeds(kv)
		case ShardKey:
			shard = kv
		}
	}
	return closed, shard, err
}

func parseClosed(kv KeyValue) (Closed, error) {
	var c Closed
	if err := json.Unmarshal(kv.Value, &c); err != nil {
		return c, fmt.Errorf("key %s holds %.100q: %w", kv.Key, kv.Value, err)
	}
	return c, nil
}

// CheckOpen returns an error that matches ErrStoreClosed if a store is closed, or is a shard that
// was opened by itself. What writes keys without a log calls it first.
func CheckOpen(ctx context.Context, store Store) error {
	closed, shard, err := findMarksNow(ctx, store)
	switch {
	case err != nil:
		return err
	case closed.Version > 0:
		why, err := parseClosed(closed)
		return cmp.Or(err, why.refusal(closed.Version))
	case shard.Version > 0:
		return refuseShard(shard)
	}
	return nil
}

func (c Closed) refusal(version Version) error {
	if version == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrStoreClosed, c.Why)
}

// CloseStore closes a store, or if c is nil opens it again, and begins a leader epoch: every
// process that uses the store notices before its next commit. What was committed before is all that
// the store will hold. It needs no Log, and repeats itself if other processes begin epochs
// meanwhile.
func CloseStore(ctx context.Context, store Store, c *Closed) error {
	var value []byte
	if c != nil {
		value = c.Encode()
	}
	for range enterMax {
		err := tryClose(ctx, store, value)
		if err == nil {
			return nil
		}
		if !errors.Is(err, ErrStale) && !errors.Is(err, ErrRewound) && !errors.Is(err, ErrUnsure) {
			return fmt.Errorf("close the store: %w", err)
		}
		// Another process began an epoch, or the answer was lost: a further epoch does no harm.
	}
	return fmt.Errorf("close the store: %w: its incarnation changed %d times meanwhile", ErrUnavailable, enterMax)
}

func tryClose(ctx context.Context, store Store, value []byte) error {
	bounds, mark, err := store.Changes(ctx, Mark{})
	if err != nil {
		return err
	}
	kv, err := lister(store.List).get(ctx, EpochKey)
	if err != nil {
		return err
	}
	_, closed, err := FindClosed(ctx, store)
	if err != nil {
		return err
	}
	record, err := parseEpochs(kv)
	if err != nil {
		return err
	}
	next := record.raised(mark.Incarnation.Store, nil, bounds, time.Now())
	epochs, err := json.Marshal(next)
	if err != nil {
		return err
	}
	out, err := store.Commit(ctx, []Entry{{
		Checks: []Check{{Key: EpochKey, Version: record.version}, {Key: ClosedKey, Version: closed}},
		Puts:   []Put{{Key: EpochKey, Version: next.version, Value: epochs}, {Key: ClosedKey, Version: closed.Next(), Value: value}},
	}})
	if err != nil {
		return err
	}
	return out[0].Err
}

// Inherit returns the put of EpochKey for a copy (to) of a store (from): its newest leader epoch is
// above all of the source's.
func Inherit(ctx context.Context, from, to Store) (Put, error) {
	kv, err := lister(from.List).get(ctx, EpochKey)
	if err != nil {
		return Put{}, fmt.Errorf("read the source's epochs: %w", err)
	}
	record, err := parseEpochs(kv)
	if err != nil {
		return Put{}, fmt.Errorf("read the source's epochs: %w", err)
	}
	bounds, mark, err := to.Changes(ctx, Mark{})
	if err != nil {
		return Put{}, fmt.Errorf("read the target: %w", err)
	}
	next := record.raised(mark.Incarnation.Store, nil, bounds, time.Now())
	value, err := json.Marshal(next)
	if err != nil {
		return Put{}, fmt.Errorf("encode epochs: %w", err)
	}
	return Put{Key: EpochKey, Version: next.version, Value: value}, nil
}

// Encode returns the value of ClosedKey.
func (c Closed) Encode() []byte {
	value, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("cannot encode %v as JSON: %v", c, err)) // two strings
	}
	return value
}
