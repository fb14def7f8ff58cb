package eventlog

import "fmt"

// numberOn assigns numbers to the partitions of a topic that have none yet (0), from free up, and
// chooses their shards. It returns the next free number.
//
// A new partition goes to the shard with the fewest partitions of its topic; of several, to that
// with the fewest partitions of all topics that this process knows. So a shard that was added gets
// more of the new partitions until it has as many as the others. Topics that are Together stay on
// one shard.
func (l *Log) numberOn(t *Topic, beside string, free Partition) (Partition, error) {
	sharded, is := As[Sharded](l.store)
	shards := 1
	if is {
		shards = sharded.Shards()
	}
	home, together := 0, t.Together || t.needed() && t.Name != AuditTopic // a topic with a Writer or an owner may be older than Together
	switch {
	case !is:
	case beside != "":
		var err error
		if home, err = sharded.ShardOf(beside); err != nil {
			return 0, err
		}
	case t.Partitions[0] != catalogPartition && together:
		home = sharded.ShardWith(t.Partitions[0])
	}
	own, all := make([]int, shards), make([]int, shards)
	for p := range l.catalog.Load().owner {
		if s := l.shardWith(p); s < shards {
			all[s]++
		}
	}
	for _, p := range t.Partitions {
		if s := l.shardWith(p); p != catalogPartition && s < shards {
			own[s]++
		}
	}
	for i, p := range t.Partitions {
		if p != catalogPartition {
			continue
		}
		to := home
		if !together {
			for s := range shards {
				if own[s] < own[to] || own[s] == own[to] && all[s] < all[to] {
					to = s
				}
			}
		}
		t.Partitions[i] = free.On(to)
		own[to]++
		all[to]++
		free++
	}
	return free, nil
}

// PartitionBeside returns the topic's first partition that is on the shard of a key, so that one
// entry may hold both. The key "" is on shard 0. ErrSpansShards: there is none.
func (l *Log) PartitionBeside(t Topic, key string) (Partition, error) {
	sharded, is := As[Sharded](l.store)
	if !is {
		return t.Partitions[0], nil
	}
	home, err := 0, error(nil)
	if key != "" {
		home, err = sharded.ShardOf(key)
	}
	if err != nil {
		return 0, err
	}
	for _, p := range t.Partitions {
		if sharded.ShardWith(p) == home {
			return p, nil
		}
	}
	return 0, fmt.Errorf("%w: topic %q has no partition on shard %d", ErrSpansShards, t.Name, home)
}

// shardWith returns the shard where a partition is.
func (l *Log) shardWith(p Partition) int {
	if sharded, is := As[Sharded](l.store); is {
		return sharded.ShardWith(p)
	}
	return 0
}
