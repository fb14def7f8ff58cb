package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// gonePrefix begins the keys that mark a queue's id as purged or deleted, so that its other keys
// get deleted. There may be a million unique keys, too many for the entry that deletes the queue.
// Nobody reads the other keys any more.
const gonePrefix = "queue/gone/"

// forgetMost bounds the keys that one entry deletes.
const forgetMost = 500

// note is the value of a key under gonePrefix.
type note struct {
	Purged string `json:"purged,omitempty"` // the queue that had the id, if it was purged
}

// goes returns the put that marks a queue's id as purged or deleted.
func goes(id string, n note) eventlog.Put {
	value, err := json.Marshal(n)
	if err != nil {
		panic(fmt.Sprintf("queue: encode a note: %v", err)) // it holds a text
	}
	return eventlog.Put{Key: gonePrefix + id, Version: eventlog.Version(0).Next(), Value: value}
}

// forgetGone deletes, in the background, the keys of a purged or deleted id. If this process ends
// first, another one does it (forgetAllGone).
func (qs *Queues) forgetGone(id string) {
	qs.start(func(ctx context.Context) { qs.tryForget(ctx, id) })
}

// forgetAllGone deletes the keys that other processes left: one store call if there are none.
func (qs *Queues) forgetAllGone(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; {
		var ids []string
		err := qs.log.ListAll(ctx, gonePrefix, func(kv eventlog.KeyValue) error {
			ids = append(ids, kv.Key[len(gonePrefix):])
			return nil
		})
		if err == nil {
			for _, id := range ids {
				qs.tryForget(ctx, id)
			}
			return
		}
		failures++
		eventlog.Pause(ctx, failures)
	}
}

func (qs *Queues) tryForget(ctx context.Context, id string) {
	for failures := 0; ctx.Err() == nil; {
		err := qs.forget(ctx, id)
		if err == nil {
			return
		}
		if failures++; failures == 1 && ctx.Err() == nil && !isStale(err) {
			qs.logger.Info("the state of a purged or deleted queue cannot be removed now; trying again", "id", id, "err", err)
		}
		eventlog.Pause(ctx, failures)
	}
}

// forget deletes an id's keys, forgetMost per entry, then its delayed messages, and last its note,
// the key under gonePrefix. No key is added meanwhile: whoever puts one checks the definition of
// the queue, which has another id by now or does not exist.
//
// Each entry checks the note. If it is missing, either the store was rewound to before the purge or
// the deletion, so that the queue has its keys again, or another process has deleted them all.
func (qs *Queues) forget(ctx context.Context, id string) error {
	kv, err := qs.log.Get(ctx, gonePrefix+id)
	if err != nil || kv.Version == 0 {
		return err
	}
	if err := qs.settle(ctx, kv); err != nil {
		return err
	}
	marked := []eventlog.Check{{Key: kv.Key, Version: kv.Version}}
	for _, prefix := range []string{statesOf(id), deadPrefix + id + "/", uniquePrefix + id + "/", schedulesOf(id), messagesOf(id)} {
		for after := ""; ; {
			kvs, err := qs.log.List(ctx, prefix, after, forgetMost)
			if err != nil {
				return err
			}
			if len(kvs) == 0 {
				break
			}
			e := eventlog.Entry{Checks: marked}
			stays, err := qs.stay(ctx, id, kv, kvs)
			if err != nil {
				return err
			}
			for i, kv := range kvs {
				if after = kv.Key; !stays[i] {
					e.Puts = append(e.Puts, eventlog.Put{Key: kv.Key})
				}
			}
			if len(e.Puts) == 0 {
				continue
			}
			if _, err := qs.log.Append(ctx, e); err != nil {
				return err
			}
		}
	}
	if err := qs.delayed.removeGone(ctx); err != nil {
		return err
	}
	_, err = qs.log.Append(ctx, eventlog.Entry{Checks: marked, Puts: []eventlog.Put{{Key: kv.Key}}})
	return err
}

// stay tells which keys of a purged queue stay: the unique keys of messages that came while the
// purge was on its way. They go with their messages, or with the next purge.
func (qs *Queues) stay(ctx context.Context, id string, of eventlog.KeyValue, kvs []eventlog.KeyValue) ([]bool, error) {
	stays := make([]bool, len(kvs))
	var n note
	if err := json.Unmarshal(of.Value, &n); err != nil || n.Purged == "" || !strings.HasPrefix(kvs[0].Key, uniquePrefix) {
		return stays, err
	}
	d, err := qs.read(ctx, n.Purged)
	if errors.Is(err, ErrUnknownQueue) || err == nil && d.earlier() != id {
		return stays, nil
	}
	if err != nil {
		return nil, err
	}
	q, err := qs.openAs(ctx, d.name, d.id)
	if err != nil {
		return nil, err
	}
	holders := make([]holder, len(kvs))
	for i, kv := range kvs {
		if holders[i], err = parseHolder(kv); err != nil {
			return nil, err
		}
		holders[i].earlier = true
	}
	over, err := q.areOver(ctx, holders)
	for i := range over {
		stays[i] = !over[i]
	}
	return stays, err
}

// goesBefore returns the puts that mark the id before the last purge once more, if there was a
// purge: the keys of that id that stayed then are deleted now.
func (d *definition) goesBefore() []eventlog.Put {
	if d.earlier() == "" {
		return nil
	}
	again := goes(d.earlier(), note{})
	again.Version = again.Version.Next() // so a process that is deleting the id's keys now is refused, and begins anew
	return []eventlog.Put{again}
}

// addEarlier adds to states that a purge wrote what the states under the id before the purge have
// above the floors: what was claimed, acknowledged or given back while the purge was on its way.
// Nobody changes those states any more, because every change checks the queue's definition. They
// are deleted only after settle has written what is added here into every state that needs it. A
// claim from before the purge stays until its lease ends; its receipt is of no use. addEarlier
// costs the store calls of Queues.each, or none.
//
// What an even earlier purge left need not be added, because the last purge read the ends of the
// partitions after it.
func (qs *Queues) addEarlier(ctx context.Context, keys []string, states []*claims.State) error {
	earlier := make([]string, len(keys))
	needed := false
	for i, s := range states {
		if s.After != "" {
			earlier[i], needed = statesOf(s.After)+keys[i][strings.LastIndexByte(keys[i], '/')+1:], true
		}
	}
	if !needed {
		return nil
	}
	return qs.each(ctx, earlier, func(i int, old *claims.State) error {
		for _, p := range old.Parts {
			mine := states[i].Part(p.Partition)
			if p.Trimmed(mine.Floor); p.Next > mine.Next {
				*mine = p
			}
		}
		return nil
	})
}

// settle writes what addEarlier adds into the states of a purged queue that need it. of is the note
// of the id before the purge, whose states are about to be deleted.
func (qs *Queues) settle(ctx context.Context, of eventlog.KeyValue) error {
	var n note
	if err := json.Unmarshal(of.Value, &n); err != nil {
		return fmt.Errorf("key %s: %w", of.Key, err)
	}
	if n.Purged == "" {
		return nil
	}
	d, err := qs.read(ctx, n.Purged)
	if errors.Is(err, ErrUnknownQueue) { // the queue was deleted since
		return nil
	}
	if err != nil {
		return err
	}
	for after := ""; ; {
		kvs, err := qs.log.List(ctx, statesOf(d.id), after, forgetMost)
		if err != nil || len(kvs) == 0 {
			return err
		}
		after = kvs[len(kvs)-1].Key
		keys, states, reached := make([]string, len(kvs)), make([]*claims.State, len(kvs)), make([]eventlog.Offset, len(kvs))
		for i, kv := range kvs {
			if states[i], err = claims.Decode(kv.Value); err != nil {
				return fmt.Errorf("key %s does not hold a state: %w", kv.Key, err)
			}
			keys[i], reached[i] = kv.Key, states[i].Reached()
		}
		if err := qs.addEarlier(ctx, keys, states); err != nil {
			return err
		}
		for i, s := range states {
			if s.Reached() == reached[i] {
				continue // addEarlier had nothing to add
			}
			s.Writer, s.After = qs.newWriterID(), ""
			_, err := qs.log.Append(ctx, eventlog.Entry{
				Checks: []eventlog.Check{{Key: keys[i], Version: kvs[i].Version}, d.same()},
				Puts:   []eventlog.Put{{Key: keys[i], Version: kvs[i].Version.Next(), Value: s.Encode()}},
			})
			if err != nil && !isStale(err) { // if it is stale, somebody changed the state, or the queue was purged again or deleted
				return err
			}
		}
	}
}
