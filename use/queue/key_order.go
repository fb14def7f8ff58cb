package queue

import (
	"context"
	"hash/maphash"
	"maps"
	"sync/atomic"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/longlock"
	"github.com/weir-log/weir/use/claims"
)

// keySeed makes hashes unpredictable, so nobody can choose keys that collide.
var keySeed = maphash.MakeSeed()

// keys tells which messages of a partition, from its floor on, have the same key, for queues that
// keep order by key. Keys are compared by hash; two with the same hash wait for each other, which
// does no harm. keys are never changed, only replaced.
type keys struct {
	from    eventlog.Offset
	before  []eventlog.Offset // for each message, beginning with from: the previous message with the same key; -1: there is none, or the message has no key
	changed <-chan struct{}   // closed: the store may have lost these messages, and other messages may have their offsets
}

// keyReader reads the keys of one partition.
type keyReader struct {
	keys atomic.Pointer[keys] // nil: none were read

	mu     longlock.Mutex             // held while keys are read; guards lastOf
	lastOf map[uint64]eventlog.Offset // by the hash of a key: the last message of keys that has it
}

// keysOf returns the reader of a partition's keys.
func (q *Queue) keysOf(p eventlog.Partition) *keyReader {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := q.keys[p]
	if k == nil {
		k = &keyReader{}
		q.keys[p] = k
	}
	return k
}

func (k *keys) end() eventlog.Offset { return k.from + eventlog.Offset(len(k.before)) }

// keysMax bounds how far past its floor a partition with order by key gives out messages.
const keysMax = 100_000

// keyOrder says which messages may be claimed: for each key, the first message that is not done.
type keyOrder struct {
	keys *keys
	open []bool // for each message that first was called for: whether it, or an earlier one with its key, is not done
}

// order returns the order of a partition's messages, and the offset where the known keys end:
// messages from there on cannot be claimed yet.
func (k *keys) order(p *claims.Part, end eventlog.Offset) (o claims.Order, known eventlog.Offset) {
	if k == nil || isClosed(k.changed) || k.from > p.Floor {
		return (&keyOrder{keys: &keys{}}).first, p.Next
	}
	return (&keyOrder{keys: k, open: make([]bool, len(k.before))}).first, min(end, k.end())
}

// first reports whether a message is the first of its key that is not done.
func (o *keyOrder) first(at eventlog.Offset, done bool) bool {
	if at >= o.keys.end() {
		return false // another process has claimed beyond the known keys
	}
	i, before := at-o.keys.from, o.keys.before[at-o.keys.from]-o.keys.from
	waits := before >= 0 && o.open[before]
	o.open[i] = waits || !done
	return !waits && !done
}

// read reads the keys from the floor to at least `more` messages past Part.Next, if there are so
// many, and at most keysMax past the floor.
func (r *keyReader) read(ctx context.Context, q *Queue, p eventlog.Partition, more int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := q.log.IncarnationChanged() // before the rest: the store may be rewound meanwhile
	known, err := q.shard(p).get(ctx)
	if err != nil {
		return err
	}
	bounds, _ := q.log.Known(p)
	mine := *known.Clone().Part(p)
	mine.Trimmed(bounds.First)
	k := r.keys.Load()
	if k == nil || isClosed(k.changed) || mine.Floor < k.from || mine.Floor > k.end() {
		k = &keys{from: mine.Floor, changed: changed}
		r.lastOf = make(map[uint64]eventlog.Offset)
	}
	most := min(bounds.Stable(), mine.Floor+keysMax)
	if k == r.keys.Load() && k.end() >= min(most, mine.Next+eventlog.Offset(more)) {
		return nil
	}
	// Callers that use k do not see the elements that are appended to its array.
	next := &keys{from: mine.Floor, before: k.before[mine.Floor-k.from:], changed: k.changed}
	defer func() { r.keys.Store(next) }() // after an error, too: lastOf already has the keys that were read
	for o := next.end(); o < min(most, mine.Next+eventlog.Offset(max(more, 1000))); o++ {
		rec, err := q.records.read(ctx, p, o)
		if noneIfGone(err) != nil {
			return err
		}
		before := eventlog.Offset(-1)
		if rec.Key != nil {
			h := maphash.Bytes(keySeed, rec.Key)
			if last, there := r.lastOf[h]; there {
				before = last
			}
			r.lastOf[h] = o
		}
		next.before = append(next.before, before)
	}
	if len(r.lastOf) > 2*keysMax {
		maps.DeleteFunc(r.lastOf, func(_ uint64, last eventlog.Offset) bool { return last < next.from })
	}
	return nil
}
