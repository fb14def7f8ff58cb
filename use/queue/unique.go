package queue

import (
	"context"
	"fmt"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// holder is the message that has a unique key. Its key in the store holds
//
//	4XJ…token 7-1017 moved
//
// The message has the same token in a header. Whoever may publish to the queue's topic can write that header, but the token is random:
// only who may read the topic, and so may claim and acknowledge the message, knows it.
type holder struct {
	token string // "": of a message that was enqueued before there were tokens
	id    MessageID
	moved bool // it was delayed for a retry: it is no longer where its id says
}

const uniqueMoved = " moved"

func (h holder) String() string {
	text := h.id.String()
	if h.token != "" {
		text = h.token + " " + text
	}
	if h.moved {
		text += uniqueMoved
	}
	return text
}

// holderValue is a holder's value up to the offset of its id, which the store appends.
func holderValue(headers []batch.RecordHeader, p eventlog.Partition) []byte {
	text, _ := header(batch.Record{Headers: headers}, headerUnique)
	_, token, _ := strings.Cut(text, " ")
	return fmt.Appendf(nil, "%s %d-", token, p)
}

func parseHolder(kv eventlog.KeyValue) (h holder, err error) {
	text, moved := strings.CutSuffix(string(kv.Value), uniqueMoved)
	h.moved = moved
	if token, id, has := strings.Cut(text, " "); has {
		h.token, text = token, id
	}
	h.id, err = ParseID(text)
	if err != nil {
		return h, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	return h, nil
}

// holds finds the unique key that a message holds; "": none. One store call if the message has the header of a unique key.
func (q *Queue) holds(ctx context.Context, rec batch.Record, id MessageID) (key string, held holder, err error) {
	text, _ := header(rec, headerUnique)
	key, token, _ := strings.Cut(text, " ")
	if !strings.HasPrefix(key, uniquePrefix+q.id+"/") || len(key) != len(q.uniqueKey("")) {
		return "", held, nil
	}
	kv, err := q.log.Get(ctx, key)
	if err != nil || kv.Version == 0 {
		return "", held, err
	}
	held, err = parseHolder(kv)
	if err != nil || held.token != token || token == "" && held.id != id {
		return "", held, err
	}
	return key, held, nil
}

// movesUnique returns the put that marks a message's unique key, if it holds one, as that of a message delayed for a retry.
func (q *Queue) movesUnique(ctx context.Context, rec batch.Record, id MessageID) ([]eventlog.Put, error) {
	key, held, err := q.holds(ctx, rec, id)
	if err != nil || key == "" {
		return nil, err
	}
	held.moved = true
	return []eventlog.Put{{Key: key, Version: eventlog.Version(0).Next(), Value: []byte(held.String())}}, nil
}

// freesUnique returns the put that frees a message's unique key, if it holds one.
func (q *Queue) freesUnique(ctx context.Context, rec batch.Record, id MessageID) ([]eventlog.Put, error) {
	key, _, err := q.holds(ctx, rec, id)
	if err != nil || key == "" {
		return nil, err
	}
	return []eventlog.Put{{Key: key}}, nil
}

// unique returns the put that frees the unique key of a finished message. It reads the message only if the queue has unique keys.
func (q *Queue) unique(ctx context.Context, g grant) ([]eventlog.Put, error) {
	if !q.def.Load().settings.Unique {
		return nil, nil
	}
	rec, err := q.records.read(ctx, g.partition, g.offset)
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return q.freesUnique(ctx, rec, idOf(g, rec))
}
