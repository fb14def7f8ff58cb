package shard

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/weir-log/weir/eventlog"
)

// place says on which shard a key lives. The shard depends on the key's text and on what was fixed
// when the set was made, never on how many shards there are now: a key does not move when shards
// are added. A key of a partition is where the partition is.
type place struct {
	rules  []eventlog.KeyRule
	homes  int // keys with a rule ByFirst are on the shards [0, homes)
	shards int
	table  *table // of the partitions that were moved; nil: none was
}

// of returns the shard of a key. closed: all keys that begin with it are on that shard, too.
func (p place) of(key string) (shard int, closed bool, err error) {
	closed = true
	for _, rule := range p.rules {
		rest, is := strings.CutPrefix(key, rule.Prefix)
		if !is {
			closed = closed && !strings.HasPrefix(rule.Prefix, key) // a longer key may have this rule
			continue
		}
		switch rule.By {
		case eventlog.ByFirst:
			first, _, more := strings.Cut(rest, "/")
			return p.hashed(first), more, nil
		case eventlog.ByPartition:
			n, err := strconv.ParseInt(rest[strings.LastIndexByte(rest, '/')+1:], 10, 64)
			if err != nil {
				return 0, false, nil // not a whole key, but a prefix to list: its keys may be on any shard
			}
			at := p.with(eventlog.Partition(n))
			if at < 0 || at >= p.shards {
				return 0, false, fmt.Errorf("%w: key %q is on shard %d, and this process was started with %d shards: start it again with the whole list", eventlog.ErrUnavailable, key, at, p.shards)
			}
			return at, false, nil
		}
	}
	return 0, closed, nil
}

// partitionOf returns the partition that a key belongs to; false: it belongs to none.
func (p place) partitionOf(key string) (eventlog.Partition, bool) {
	for _, rule := range p.rules {
		if rule.By != eventlog.ByPartition || !strings.HasPrefix(key, rule.Prefix) {
			continue
		}
		n, err := strconv.ParseInt(key[strings.LastIndexByte(key, '/')+1:], 10, 64)
		return eventlog.Partition(n), err == nil
	}
	return 0, false
}

// with returns the shard where a partition is.
func (p place) with(id eventlog.Partition) int {
	if p.table == nil {
		return id.Shard()
	}
	return p.table.with(id)
}

// id returns a partition's number on its shard.
func (p place) id(id eventlog.Partition) eventlog.Partition {
	if p.table == nil {
		return id
	}
	return p.table.id(id)
}

// hashed chooses one of the homes, by hash. The hash must never change: keys that are stored would
// be looked for on other shards.
func (p place) hashed(part string) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(part)) // never fails
	return int(h.Sum64() % uint64(p.homes))
}
