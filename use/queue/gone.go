package queue

import (
	"context"

	"github.com/weir-log/weir/eventlog"
)

// gonePrefix begins the keys that mark a queue's id as purged or deleted, so that its other keys get deleted. There may be a million
// unique keys, too many for the entry that deletes the queue. Nobody reads the other keys any more.
const gonePrefix = "queue/gone/"

// forgetMost bounds the keys that one entry deletes.
const forgetMost = 500

// goes returns the put that marks a queue's id as purged or deleted.
func goes(id string) eventlog.Put {
	return eventlog.Put{Key: gonePrefix + id, Version: eventlog.Version(0).Next(), Value: []byte("{}")}
}

// forgetGone deletes, in the background, the keys of a purged or deleted id. If this process ends first, another one does it
// (forgetAllGone).
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
		pause(ctx, failures)
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
		pause(ctx, failures)
	}
}

// forget deletes an id's keys, forgetMost per entry, and last its note, the key under gonePrefix. No key is added meanwhile: whoever puts one checks the
// definition of the queue, which has another id or does not exist.
//
// Each entry checks the note. If it is missing, either the store was rewound to before the purge or the deletion, so that the queue has its keys again, or
// another process has deleted them all.
func (qs *Queues) forget(ctx context.Context, id string) error {
	note, err := qs.log.Get(ctx, gonePrefix+id)
	if err != nil || note.Version == 0 {
		return err
	}
	marked := []eventlog.Check{{Key: note.Key, Version: note.Version}}
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
			for _, kv := range kvs {
				e.Puts = append(e.Puts, eventlog.Put{Key: kv.Key})
				after = kv.Key
			}
			if _, err := qs.log.Append(ctx, e); err != nil {
				return err
			}
		}
	}
	_, err = qs.log.Append(ctx, eventlog.Entry{Checks: marked, Puts: []eventlog.Put{{Key: note.Key}}})
	return err
}
