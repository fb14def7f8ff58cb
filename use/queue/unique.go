package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
)

// holder is the message that has a unique key. Its key in the store holds
//
//	4XJ…token 7-1017           the message is where it was enqueued: in the queue, or in the wheel
//	4XJ…token 7-1017 moved     it was delayed for a retry, and is in the wheel
//	4XJ…token 7-1017 3+2-90    the wheel delivered it: it is in partition 3, as record 2 of the batch at offset 90
//
// The message has the same token in a header. Whoever may publish to the queue's topic can write that header, but the token is random:
// only who may read the topic, and so may claim and acknowledge the message, knows it.
type holder struct {
	token     string // "": of a message that was enqueued before there were tokens
	id        MessageID
	moved     bool      // it was delayed for a retry: it is no longer where its id says
	place     MessageID // where the wheel delivered it, if delivered
	delivered bool
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
	words := strings.Split(text, " ")
	if last := words[len(words)-1]; strings.Contains(last, "+") {
		h.delivered, words = true, words[:len(words)-1]
		h.place, err = parsePlace(last)
	}
	if len(words) == 2 {
		h.token, words = words[0], words[1:]
	}
	if err == nil {
		h.id, err = ParseID(strings.Join(words, " "))
	}
	if err != nil {
		return h, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	return h, nil
}

// placeValue is the value for a holder that the wheel delivers, up to the batch's offset, which the store appends.
func (h holder) placeValue(p eventlog.Partition, record int) []byte {
	h.moved = false
	return fmt.Appendf(nil, "%s %d+%d-", h, p, record)
}

func parsePlace(text string) (place MessageID, err error) {
	partition, at, _ := strings.Cut(text, "+")
	record, base, _ := strings.Cut(at, "-")
	n, err := strconv.ParseUint(record, 10, 31)
	if err != nil {
		return place, err
	}
	place, err = ParseID(partition + "-" + base)
	place.Offset += eventlog.Offset(n)
	return place, err
}

// uniqueOf reads the unique key that a message's header names, and tells whether the message has its holder's token. "": it names none, or a free one.
// One store call if it has the header.
func (q *Queue) uniqueOf(ctx context.Context, rec batch.Record) (key string, held holder, same bool, err error) {
	text, _ := header(rec, headerUnique)
	key, token, _ := strings.Cut(text, " ")
	if !strings.HasPrefix(key, uniquePrefix+q.id+"/") || len(key) != len(q.uniqueKey("")) {
		return "", held, false, nil
	}
	kv, err := q.log.Get(ctx, key)
	if err != nil || kv.Version == 0 {
		return "", held, false, err
	}
	held, err = parseHolder(kv)
	return key, held, held.token == token, err
}

// holds finds the unique key that a message holds; "": none. One store call if the message has the header of a unique key.
func (q *Queue) holds(ctx context.Context, rec batch.Record, g grant) (key string, held holder, err error) {
	key, held, same, err := q.uniqueOf(ctx, rec)
	if err != nil || key == "" || !same {
		return "", held, err
	}
	at := MessageID{g.partition, g.offset}
	switch {
	case held.token != "", held.delivered && held.place == at, held.id == at:
		return key, held, nil
	case !held.delivered && (held.moved || q.owner.wheel.has(held.id.Partition)) && held.id == idOf(g, rec):
		return key, held, nil // an older version delivered it: no more is known of it than its id, which can be forged
	}
	return "", held, nil
}

// delivers finds the unique key of a message that the wheel delivers, if it holds one, with its holder: the key is to say where the message is. It needs
// no check: the message alone frees its key, and leaves its slot once.
func (q *Queue) delivers(ctx context.Context, rec batch.Record, id MessageID) (key string, held holder, err error) {
	key, held, same, err := q.uniqueOf(ctx, rec)
	if err != nil || !same || held.token == "" && held.id != id {
		return "", held, err
	}
	return key, held, nil
}

// movesUnique returns the put that marks a message's unique key, if it holds one, as that of a message delayed for a retry.
func (q *Queue) movesUnique(ctx context.Context, rec batch.Record, g grant) ([]eventlog.Put, error) {
	key, held, err := q.holds(ctx, rec, g)
	if err != nil || key == "" {
		return nil, err
	}
	held.moved, held.delivered = true, false
	return []eventlog.Put{{Key: key, Version: eventlog.Version(0).Next(), Value: []byte(held.String())}}, nil
}

// freesUnique returns the put that frees a message's unique key, if it holds one.
func (q *Queue) freesUnique(ctx context.Context, rec batch.Record, g grant) ([]eventlog.Put, error) {
	key, _, err := q.holds(ctx, rec, g)
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
	return q.freesUnique(ctx, rec, g)
}
