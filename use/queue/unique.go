package queue

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/use/claims"
)

// holder is the message that has a unique key. Its key in the store holds
//
//	4XJ…token 7+2-1017         the message is where it was enqueued, in the queue or in the wheel: in partition 7, as record 2 of the batch at offset 1017
//	4XJ…token 7-1019 3+0-90    it was moved since, into the wheel or out of it
//
// The message has the same token in a header. Anybody who may read the topic can copy that header,
// so only the message at that place has the key.
type holder struct {
	token string // "": the message was enqueued before there were tokens
	id    MessageID
	place MessageID // where the message is
	lost  bool      // an older version of weir moved it, and did not write its new place
	// earlier: the key has the queue's id from before its last purge.
	earlier bool
}

const uniqueLost = " moved"

func (h holder) String() string {
	if h.token == "" {
		return h.id.String()
	}
	return h.token + " " + h.id.String()
}

// holderValue is the value for a new holder, up to the batch's offset, which the store appends.
func holderValue(headers []batch.RecordHeader, p eventlog.Partition, record int) []byte {
	text, _ := header(batch.Record{Headers: headers}, headerUnique)
	_, token, _ := strings.Cut(text, " ")
	return fmt.Appendf(nil, "%s %d+%d-", token, p, record)
}

func parseHolder(kv eventlog.KeyValue) (h holder, err error) {
	text, lost := strings.CutSuffix(string(kv.Value), uniqueLost)
	h.lost = lost
	places := text
	if token, rest, _ := strings.Cut(text, " "); !strings.Contains(token, "-") {
		h.token, places = token, rest
	}
	id, place, moved := strings.Cut(places, " ")
	h.id, err = parsePlace(id)
	if h.place = h.id; moved && err == nil {
		h.place, err = parsePlace(place)
	}
	if err != nil {
		return h, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
	}
	return h, nil
}

// placeValue is the value for a holder that moves, up to the batch's offset, which the store
// appends.
func (h holder) placeValue(p eventlog.Partition, record int) []byte {
	return fmt.Appendf(nil, "%s %d+%d-", h, p, record)
}

func parsePlace(text string) (place MessageID, err error) {
	partition, at, counted := strings.Cut(text, "+")
	if !counted {
		return ParseID(text)
	}
	record, base, _ := strings.Cut(at, "-")
	n, err := strconv.ParseUint(record, 10, 31)
	if err != nil {
		return place, err
	}
	place, err = ParseID(partition + "-" + base)
	place.Offset += eventlog.Offset(n)
	return place, err
}

// uniqueNamed returns the unique key that a message's header names, and the token there. "": the
// header names no key of this queue. A message that came while the queue was purged, and stays, has
// a key of the queue's id before the purge.
func (q *Queue) uniqueNamed(rec batch.Record) (key, token string) {
	key, token, _ = strings.Cut(headerText(rec, headerUnique), " ")
	for _, id := range q.ids() {
		if strings.HasPrefix(key, uniquePrefix+id+"/") && len(key) == len(uniqueKey(id, "")) {
			return key, token
		}
	}
	return "", ""
}

// isEarlier reports whether a unique key in the store is of the id before the last purge.
func (q *Queue) isEarlier(key string) bool { return !strings.HasPrefix(key, uniquePrefix+q.id+"/") }

// uniqueIn returns who holds a unique key. same: the holder has this token. A free key has no
// holder.
func uniqueIn(kv eventlog.KeyValue, token string) (held holder, same bool, err error) {
	if kv.Version == 0 {
		return held, false, nil
	}
	held, err = parseHolder(kv)
	return held, held.token == token, err
}

// isAt reports whether a message with the holder's token is the holder, by its place. If an older
// version moved the holder, its place is not known: then the token is enough or, if it has none,
// the id.
func (h holder) isAt(place, id MessageID) bool {
	return h.place == place || h.lost && (h.token != "" || h.id == id)
}

// named is the unique key that the header of a message names. Whether the message holds it, only
// the store knows (uniques).
type named struct {
	key, token string
	place, id  MessageID
	ends       bool   // the message ends, and frees the key; otherwise it moves
	to         string // if it moves: its key afterwards
}

// names returns the unique key that the header of a message names; nil: none.
func (q *Queue) names(rec batch.Record, g claims.Grant, ends bool) *named {
	key, token := q.uniqueNamed(rec)
	if key == "" {
		return nil
	}
	return &named{key: key, token: token, place: MessageID{g.Partition, g.Offset}, id: idOf(g, rec), ends: ends, to: q.currentKey(key)}
}

// currentKey turns the store's key for a unique key, from before or after the last purge, into the
// one that it has since the purge.
func (q *Queue) currentKey(key string) string {
	return uniquePrefix + q.id + key[strings.LastIndexByte(key, '/'):]
}

// unique returns the unique key that a finished message may free. It reads the message only if the
// queue has unique keys.
func (q *Queue) unique(ctx context.Context, g claims.Grant) (*named, error) {
	if !q.def.Load().settings.Unique {
		return nil, nil
	}
	rec, err := q.records.read(ctx, g.Partition, g.Offset)
	if gone(err) {
		return nil, nil
	}
	return q.names(rec, g, true), err
}

// uniques finds out which messages hold the unique keys that they name, and adds to their
// preparations what becomes of these keys: one store call per thousand keys.
func (q *Queue) uniques(ctx context.Context, all ...*preparation) error {
	of := make(map[string][]*preparation)
	for _, p := range all {
		if p.names != nil {
			of[p.names.key] = append(of[p.names.key], p)
		}
	}
	return q.log.GetAll(ctx, slices.Sorted(maps.Keys(of)), func(kv eventlog.KeyValue) error {
		for _, p := range of[kv.Key] {
			held, same, err := uniqueIn(kv, p.names.token)
			switch {
			case err != nil:
				return err
			case !same || !held.isAt(p.names.place, p.names.id):
			case p.names.ends:
				p.puts = []eventlog.Put{{Key: kv.Key}}
			default:
				p.unique, p.holder = p.names.to, held
				if p.names.to != kv.Key {
					p.puts = []eventlog.Put{{Key: kv.Key}}
				}
			}
		}
		return nil
	})
}

// heldKey is a unique key that is in the store.
type heldKey struct {
	holder
	version eventlog.Version
	over    bool // the message is certainly no longer in the queue, so the key is free
}

// held reads unique keys, and finds out for those that are in the store whether their messages are
// over. It costs one store call per thousand keys, and the store calls of areOver.
func (q *Queue) held(ctx context.Context, keys []string) (map[string]heldKey, error) {
	var found []eventlog.KeyValue
	err := q.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		if kv.Version > 0 {
			found = append(found, kv)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, nil
	}
	holders := make([]holder, len(found))
	for i, kv := range found {
		var err error
		if holders[i], err = parseHolder(kv); err != nil {
			return nil, err
		}
		holders[i].earlier = q.isEarlier(kv.Key)
	}
	over, err := q.areOver(ctx, holders)
	if err != nil {
		return nil, err
	}
	held := make(map[string]heldKey)
	for i, kv := range found {
		held[kv.Key] = heldKey{holders[i], kv.Version, over[i]}
	}
	return held, nil
}

// areOver reports which messages are certainly no longer in the queue. If an older version of weir
// moved a message, its place is not known: false. It costs one store call for all partitions, and
// one per thousand partitions or 4 MiB of states.
func (q *Queue) areOver(ctx context.Context, holders []holder) ([]bool, error) {
	topics, err := q.levels(ctx)
	if err != nil {
		return nil, err
	}
	elsewhere := func(h holder) bool {
		_, mine := topicOf(topics, h.place.Partition)
		return !h.lost && !mine && !q.owner.wheel.has(h.place.Partition)
	}
	if slices.ContainsFunc(holders, elsewhere) { // another process may just have added the partition
		if err := q.log.RefreshTopics(ctx); err != nil {
			return nil, err
		}
		if topics, err = q.levels(ctx); err != nil {
			return nil, err
		}
	}
	over := make([]bool, len(holders))
	first := make(map[eventlog.Partition]eventlog.Offset) // the first offset of each of the queue's partitions that holders are in
	of := make(map[string][]int)                          // by the key of a state: the holders whose fate that state knows
	for i, h := range holders {
		p := h.place.Partition
		var key string
		switch {
		case h.lost:
			continue
		case elsewhere(h): // the topic was deleted
			over[i] = true
			continue
		case q.owner.wheel.has(p) && h.earlier: // the purge discarded this message: a message that moves into the wheel after the purge has a key of the new id
			over[i] = true
			continue
		case q.owner.wheel.has(p): // a message that moves changes its unique key in the same entry, so if it is done in the wheel and the key still names it there, it was dropped
			key = wheelStateKey(p)
		default:
			key = q.def.Load().keyOf(p)
			first[p] = 0
		}
		of[key] = append(of[key], i)
	}
	if len(first) > 0 {
		bounds, err := q.log.Bounds(ctx, slices.Collect(maps.Keys(first))...)
		if err != nil {
			return nil, err
		}
		for _, b := range bounds {
			if b.Err != nil {
				return nil, b.Err
			}
			first[b.Bounds.Partition] = b.Bounds.First
		}
	}
	keys := slices.Collect(maps.Keys(of))
	return over, q.owner.each(ctx, keys, func(nth int, st *claims.State) error {
		for _, i := range of[keys[nth]] {
			at := holders[i].place
			known := st.Part(at.Partition)
			r, there := known.At(at.Offset)
			switch {
			case at.Offset < known.Next: // a worker may still answer a claimed message, even if the log no longer has it
				over[i] = !there || r.Fate == claims.Done
			default: // the message was never claimed
				over[i] = at.Offset < first[at.Partition]
			}
		}
		return nil
	})
}
