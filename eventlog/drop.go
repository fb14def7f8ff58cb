package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weir-log/weir/eventlog/batch"
)

// Drop removes records from a partition, as compaction does: the others keep their offsets. It is
// for a topic that is not compacted, and whose only writer knows that nobody needs these records.
// It looks at about compactBytes of batches, beginning with the one that holds the offset from, and
// returns where the next call goes on. It costs two store calls, and one more if there is something
// to remove.
//
// changed is what IncarnationChanged returned before the caller read what it decides by: if the log
// has entered another incarnation since, nothing is removed (ErrRewound). ErrStale: another process
// removed records of the partition, or trimmed it, at the same time; nothing was removed.
//
// A batch that cannot be read stays, and so does one of which the first records were trimmed.
func (l *Log) Drop(ctx context.Context, changed <-chan struct{}, t Topic, p Partition, from Offset, drops func(batch.Record) bool) (next Offset, err error) {
	kv, err := l.Get(ctx, ReplacedKey(p)) // before the batches: if others replace some after this, the entry is refused
	if err != nil {
		return from, err
	}
	got, err := l.read(ctx, []Span{{Partition: p, From: from, MaxBytes: compactBytes}}, compactBytes)
	if err != nil {
		return from, err
	}
	var damaged *DamagedError
	switch s := got[0]; {
	case errors.As(s.Err, &damaged):
		return max(from+1, damaged.Next), nil
	case s.Err != nil:
		return from, s.Err
	case from < s.Bounds.First:
		return s.Bounds.First, nil
	case len(s.Batches) == 0:
		return s.Bounds.Next, nil
	}
	batches := got[0].Batches
	if batches[0].Base < got[0].Bounds.First {
		return batches[0].End(), nil
	}
	removes := false
	for i, b := range batches {
		has, err := b.has(drops)
		if err != nil && i == 0 {
			return b.End(), nil
		}
		if err != nil {
			batches = batches[:i]
			break
		}
		removes = removes || has
	}
	next = batches[len(batches)-1].End()
	if !removes {
		return next, nil
	}
	c := compaction{log: l, topic: t, partition: p, changed: changed, state: cleaned{version: kv.Version}, drops: drops}
	if kv.Version > 0 {
		if err := json.Unmarshal(kv.Value, &c.state); err != nil {
			return from, fmt.Errorf("key %s holds %q: %w", kv.Key, kv.Value, err)
		}
	}
	if err := c.rewrite(ctx, batches); err != nil {
		return from, err
	}
	return next, nil
}

// has reports whether is(record) is true for one of the batch's records.
func (b Placed) has(is func(batch.Record) bool) (has bool, err error) {
	for rec, err := range b.Decode() {
		if err != nil {
			return false, err
		}
		has = has || is(rec)
	}
	return has, nil
}
