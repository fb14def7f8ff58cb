// Package storecopy copies a store to another one, of any kind, while the first is in use; then it
// closes the first, so that the second takes its place.
//
// Partitions keep their numbers, records their offsets and bytes, keys their versions: topics,
// groups, queues, streams and API keys are what they were. Two things are not copied: how long ago
// a key was put, and what a store keeps beside batches and keys, such as the inbox of SQL sessions.
//
// The copy is closed (eventlog.ClosedKey) until it is complete. Each commit to it checks the
// version of that key: of two processes that copy to one store, only the one that began last goes
// on. An interrupted copy continues where it ended, because what the target holds says how far it
// came.
//
// Moves copies partitions of a store made of shards from their shards to another one in the same
// way, and then lets the copies take their place.
package storecopy

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog"
)

// Errors that a caller can act on.
var (
	// ErrNotEmpty: the target holds something else than an incomplete copy of this source. Nothing
	// was changed.
	ErrNotEmpty = errors.New("the target is not an empty store, and not an incomplete copy of this source")
	// ErrSame: source and target are one store. Nothing was changed.
	ErrSame = errors.New("source and target are the same store")
	// ErrSharded: the target is made of shards. A partition's number names its shard, so a copy
	// onto several would have other numbers than its source, and every entry of a copy checks a key
	// of shard 0. Nothing was changed.
	ErrSharded = errors.New("a set of shards cannot be the target of a copy. Go two steps: copy to the store that is to be shard 0, with --switch, and start weir with --store shard:THAT_STORE,NEW_STORE,…; " +
		"then move partitions to the new shards with `weir shard move` (docs/moving.md says more: \"To a set of shards\")")
	// ErrOneShard: the source is one shard of a set, and has only a part of the set's partitions
	// and keys. Nothing was changed.
	ErrOneShard = errors.New("the source is one shard of a set of shards, and lacks what is on the others: copy the whole set")
	// ErrTaken: another process copies to the target now.
	ErrTaken = errors.New("another process copies to this target now")
	// ErrComplete: the copy was completed before. Nothing was changed.
	ErrComplete = errors.New("the copy is complete")
)

// DifferentError says in what the copy is not the same as its source.
type DifferentError struct{ What string }

func (e *DifferentError) Error() string { return "the copy differs from its source: " + e.What }

func differs(format string, values ...any) error {
	return &DifferentError{fmt.Sprintf(format, values...)}
}

// copyPrefix begins the names of keys that say which copies a store is the source or the target of.
// They are not copied.
const copyPrefix = "copy/"

// Copy is a copy of a store to another one. Its methods may not be called concurrently.
type Copy struct {
	from, to         eventlog.Store
	fromName, toName string
	id               string
	version          eventlog.Version // of the guard in the target
	scope            scope
	compared         map[eventlog.Partition]eventlog.Offset
	done             Progress
	report           func(Progress)
}

// scope is what is copied.
type scope struct {
	guard    string             // the key in the target whose version every commit to it checks
	only     eventlog.Partition // the one partition that is copied; 0: all
	prefixes []string           // of the keys that are copied
	key      func(string) bool  // which of these keys
}

func wholeStore() scope {
	return scope{guard: eventlog.ClosedKey, prefixes: []string{""}, key: func(key string) bool { return !notCopied(key) }}
}

// Progress counts what was copied and compared since Begin.
type Progress struct {
	Records  int64 `json:"records"`
	Bytes    int64 `json:"bytes"`
	Keys     int64 `json:"keys"`           // that were put or deleted
	Compared int64 `json:"compared_bytes"` // that are the same in both stores
}

// Begin begins a copy, or continues one that was interrupted. The names of the stores are for
// people, so they must have no passwords. report is called after each step; nil: nobody asks.
func Begin(ctx context.Context, from, to eventlog.Store, fromName, toName string, report func(Progress)) (*Copy, error) {
	if report == nil {
		report = func(Progress) {}
	}
	if _, is := eventlog.As[eventlog.Sharded](to); is {
		return nil, ErrSharded
	}
	c := &Copy{from: from, to: to, fromName: fromName, toName: toName, scope: wholeStore(), compared: map[eventlog.Partition]eventlog.Offset{}, report: report}
	source, sourceClosed, err := eventlog.FindClosed(ctx, from)
	if err == nil {
		err = wholeSource(ctx, from)
	}
	if err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	}
	target, targetClosed, err := eventlog.FindClosed(ctx, to)
	if err != nil {
		return nil, fmt.Errorf("read the target: %w", err)
	}
	if sourceClosed > 0 && targetClosed == 0 {
		if found, err := hasKey(ctx, to, copyPrefix+source.By); err != nil {
			return nil, fmt.Errorf("read the target: %w", err)
		} else if found {
			return nil, ErrComplete
		}
	}
	c.id = target.By
	if targetClosed == 0 {
		if c.id, err = c.start(ctx); err != nil {
			return nil, err
		}
	} else if found, err := hasKey(ctx, from, copyPrefix+c.id); err != nil {
		return nil, fmt.Errorf("read the source: %w", err)
	} else if !found {
		return nil, fmt.Errorf("%w: it is closed: %s", ErrNotEmpty, target.Why)
	}
	if sourceClosed > 0 && source.By != c.id {
		return nil, fmt.Errorf("the source: %w: %s", eventlog.ErrStoreClosed, source.Why)
	}
	if err := c.take(ctx, targetClosed); err != nil {
		return nil, err
	}
	return c, nil
}

// wholeSource refuses a source that has ShardKey: it is a shard that was opened by itself, because
// a set hides this key of its shards.
func wholeSource(ctx context.Context, from eventlog.Store) error {
	kv, err := key(ctx, from, eventlog.ShardKey)
	if err != nil || kv.Version == 0 {
		return err
	}
	mark, err := eventlog.ParseShardMark(kv)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w. It is shard %d of the set %s", ErrOneShard, mark.Number, mark.Set)
}

// start returns ErrNotEmpty unless the target is empty. It notes in the source that it is copied,
// and returns the id of the copy.
func (c *Copy) start(ctx context.Context) (string, error) {
	bounds, _, err := c.to.Changes(ctx, eventlog.Mark{})
	if err != nil {
		return "", fmt.Errorf("read the target: %w", err)
	}
	kvs, err := c.to.List(ctx, "", "", 1)
	switch {
	case err != nil:
		return "", fmt.Errorf("read the target: %w", err)
	case len(bounds) > 0:
		return "", fmt.Errorf("%w: it has %d partitions", ErrNotEmpty, len(bounds))
	case len(kvs) > 0:
		return "", fmt.Errorf("%w: it has the key %q", ErrNotEmpty, kvs[0].Key)
	}
	id := rand.Text()
	if err := commit(ctx, c.from, eventlog.Entry{Puts: []eventlog.Put{{Key: copyPrefix + id, Version: 1, Value: []byte(`{}`)}}}); err != nil {
		return "", fmt.Errorf("note in the source that it is copied: %w", err)
	}
	same, err := hasKey(ctx, c.to, copyPrefix+id)
	if err != nil {
		return "", fmt.Errorf("read the target: %w", err)
	}
	if same {
		return "", errors.Join(ErrSame, commit(ctx, c.from, eventlog.Entry{Puts: []eventlog.Put{{Key: copyPrefix + id, Version: 2}}}))
	}
	return id, nil
}

// take closes the target, if that is not done, and stops every other process that copies to it. The
// target of a move stays open.
func (c *Copy) take(ctx context.Context, at eventlog.Version) error {
	if _, _, err := c.to.Changes(ctx, eventlog.Mark{}); err != nil {
		return fmt.Errorf("read the target: %w", err)
	}
	next := at.Next()
	value := []byte(`{}`)
	if c.scope.only == 0 {
		value = eventlog.Closed{By: c.id, Why: fmt.Sprintf("it is a copy of %s that is not complete: run `weir copy --from %s --to %s --switch` to complete it", c.fromName, c.fromName, c.toName)}.Encode()
	}
	err := commit(ctx, c.to, eventlog.Entry{
		Checks: []eventlog.Check{{Key: c.scope.guard, Version: at}},
		Puts:   []eventlog.Put{{Key: c.scope.guard, Version: next, Value: value}},
	})
	if errors.Is(err, eventlog.ErrUnsure) {
		now, findErr := entered(ctx, c.to, c.scope.guard)
		if findErr != nil {
			return fmt.Errorf("close the target: %w", errors.Join(err, findErr))
		}
		if now.Version == next {
			err = nil
		}
	}
	if errors.Is(err, eventlog.ErrStale) {
		return ErrTaken
	}
	if err != nil {
		return fmt.Errorf("close the target: %w", err)
	}
	c.version = next
	return nil
}

// Switch completes the copy. It closes the source, copies and compares what is new, and opens the
// target. From the moment the source is closed until Switch returns, nobody else can write to
// either. If it fails, the source stays closed: call Switch again, or Abandon. Switch calls last
// before it opens the target. If last fails, the source is opened again.
func (c *Copy) Switch(ctx context.Context, last func() error) error {
	closed, version, err := eventlog.FindClosed(ctx, c.from)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	if version == 0 || closed.By != c.id {
		err := eventlog.CloseStore(ctx, c.from, &eventlog.Closed{By: c.id, Why: fmt.Sprintf("it was copied to %s: use that store", c.toName)})
		if err != nil {
			return fmt.Errorf("the source: %w", err)
		}
	}
	if _, err := c.Pass(ctx); err != nil {
		return err
	}
	if err := c.Compare(ctx); err != nil {
		return err
	}
	if err := c.equal(ctx); err != nil {
		return err
	}
	if err := last(); err != nil {
		return errors.Join(err, eventlog.CloseStore(ctx, c.from, nil))
	}
	epochs, err := eventlog.Inherit(ctx, c.from, c.to)
	if err != nil {
		return err
	}
	err = c.commit(ctx, eventlog.Entry{Puts: []eventlog.Put{
		epochs,
		{Key: eventlog.ClosedKey, Version: c.version.Next()},
		{Key: copyPrefix + c.id, Version: 1, Value: []byte(`{}`)},
	}})
	if errors.Is(err, eventlog.ErrUnsure) {
		if _, version, findErr := eventlog.FindClosed(ctx, c.to); findErr == nil && version == 0 {
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("open the target: %w", err)
	}
	return nil
}

// Abandon ends a copy that is not complete. The source is opened again if it was closed; the target
// stays closed for good.
func (c *Copy) Abandon(ctx context.Context) error {
	next := c.version.Next()
	value := eventlog.Closed{By: "abandoned", Why: fmt.Sprintf("it is a copy of %s that was abandoned: delete it", c.fromName)}
	if err := c.commit(ctx, eventlog.Entry{Puts: []eventlog.Put{{Key: eventlog.ClosedKey, Version: next, Value: value.Encode()}}}); err != nil {
		return fmt.Errorf("close the target: %w", err)
	}
	closed, version, err := eventlog.FindClosed(ctx, c.from)
	if err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	if version > 0 && closed.By == c.id {
		if err := eventlog.CloseStore(ctx, c.from, nil); err != nil {
			return fmt.Errorf("open the source again: %w", err)
		}
	}
	if _, _, err := c.from.Changes(ctx, eventlog.Mark{}); err != nil {
		return fmt.Errorf("read the source: %w", err)
	}
	if err := commit(ctx, c.from, eventlog.Entry{Puts: []eventlog.Put{{Key: copyPrefix + c.id, Version: 2}}}); err != nil {
		return fmt.Errorf("note in the source that it is not copied any more: %w", err)
	}
	return nil
}

// commit commits one entry to the target, if no other process has taken the copy over.
func (c *Copy) commit(ctx context.Context, e eventlog.Entry) error {
	e.Checks = append(e.Checks, eventlog.Check{Key: c.scope.guard, Version: c.version})
	err := commit(ctx, c.to, e)
	if errors.Is(err, eventlog.ErrStale) {
		return ErrTaken
	}
	return err
}

func commit(ctx context.Context, store eventlog.Store, e eventlog.Entry) error {
	out, err := store.Commit(ctx, []eventlog.Entry{e})
	if err != nil {
		return err
	}
	return out[0].Err
}

func key(ctx context.Context, store eventlog.Store, name string) (eventlog.KeyValue, error) {
	kvs, err := store.List(ctx, name, "", 1)
	if err != nil || len(kvs) == 0 || kvs[0].Key != name {
		return eventlog.KeyValue{Key: name}, err
	}
	return kvs[0], nil
}

// entered reads a key in the incarnation that the store is in now.
func entered(ctx context.Context, store eventlog.Store, name string) (kv eventlog.KeyValue, err error) {
	for range tries {
		if _, _, err = store.Changes(ctx, eventlog.Mark{}); err != nil {
			break
		}
		if kv, err = key(ctx, store, name); !errors.Is(err, eventlog.ErrRewound) {
			break
		}
	}
	return kv, err
}

func hasKey(ctx context.Context, store eventlog.Store, name string) (bool, error) {
	kv, err := key(ctx, store, name)
	return kv.Version > 0, err
}
