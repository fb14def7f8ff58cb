package queue

import (
	"context"
	"fmt"
	"iter"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/claims"
)

// each calls visit with the state that each key holds now, in the order given, and with its index.
// A key that does not exist holds an empty state, and so does "". Equal keys that follow each other
// share one state. It costs a store call for each thousand keys, or for each 4 MiB of states; an
// error of visit ends it, before the next call.
func (qs *Queues) each(ctx context.Context, keys []string, visit func(i int, s *claims.State) error) error {
	var asked []string
	var first []int // for each key that is asked for: the first index that it has in keys
	for i, key := range keys {
		if key != "" && (len(asked) == 0 || asked[len(asked)-1] != key) {
			asked, first = append(asked, key), append(first, i)
		}
	}
	next := 0 // the index to visit next
	until := func(end int, s *claims.State, key string) error {
		for ; next < end; next++ {
			mine := &claims.State{}
			if keys[next] == key {
				mine = s
			}
			if err := visit(next, mine); err != nil {
				return err
			}
		}
		return nil
	}
	nth, last, lastKey := 0, &claims.State{}, ""
	err := qs.log.GetAll(ctx, asked, func(kv eventlog.KeyValue) error {
		if err := until(first[nth], last, lastKey); err != nil {
			return err
		}
		nth++
		var err error
		last, lastKey = &claims.State{}, kv.Key
		if kv.Version > 0 {
			if last, err = claims.Decode(kv.Value); err != nil {
				return fmt.Errorf("decode the state in key %s: %w", kv.Key, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return until(len(keys), last, lastKey)
}

// keysOfParts returns the key of the state of each partition, for a queue with this definition.
func (d *definition) keysOfParts(partitions []eventlog.Partition) []string {
	keys := make([]string, len(partitions))
	for i, p := range partitions {
		keys[i] = d.keyOf(p)
	}
	return keys
}

// keyOf returns the key of the state of a partition.
func (d *definition) keyOf(p eventlog.Partition) string {
	if d.settings.limited() {
		return statesOf(d.id) + sharedShard
	}
	return stateKey(d.id, p)
}

const (
	// fillFirst is how many states a claim reads at first, if it does not know them. Each time that
	// they give too few messages it reads fillMore times as many, at most fillMost.
	fillFirst, fillMore, fillMost = 16, 8, 1000
)

// fill reads the queue's definition, and the states of the partitions from p on that this process
// does not know, at most `most` of them. It costs two store calls, and one more for each 4 MiB of
// states.
func (q *Queue) fill(ctx context.Context, all iter.Seq2[*eventlog.Topic, eventlog.Partition],
	p eventlog.Partition, most int) error {
	select {
	case q.filling <- struct{}{}:
		defer func() { <-q.filling }()
	case <-ctx.Done():
		return fmt.Errorf("queue %q: %w: gave up while others read its states (%w)",
			q.name, eventlog.ErrUnavailable, context.Cause(ctx))
	}
	if q.shard(p).known() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	if err := q.redefine(ctx); err != nil {
		return err
	}
	var shards []*shard
	begun := false
	for _, at := range all {
		if begun = begun || at == p; !begun {
			continue
		}
		if s := q.shard(at); s.known() == nil && (len(shards) == 0 || shards[len(shards)-1] != s) {
			shards = append(shards, s)
		}
		if len(shards) == most {
			break
		}
	}
	return q.owner.fill(ctx, shards)
}

// fill reads the states of shards, and after a purge what addEarlier reads. Shards with a change on
// its way stay as they are.
func (qs *Queues) fill(ctx context.Context, shards []*shard) error {
	keys := make([]string, len(shards))
	for i, s := range shards {
		keys[i] = s.key
	}
	var states []*claims.State
	var versions []eventlog.Version
	err := qs.log.GetAll(ctx, keys, func(kv eventlog.KeyValue) error {
		s, err := shards[len(states)].parse(kv)
		states, versions = append(states, s), append(versions, kv.Version)
		return err
	})
	if err == nil {
		err = qs.addEarlier(ctx, keys, states)
	}
	if err != nil {
		return err
	}
	for i, s := range shards {
		if err := s.Learn(versions[i], func() (*claims.State, bool, error) { return states[i], true, nil }); err != nil {
			return err
		}
	}
	return nil
}
