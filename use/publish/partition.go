package publish

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/weir-log/weir/internal/chance"
)

// Partitioner chooses one of a topic's n partitions, 0 to n-1, for an event whose Partition is nil.
type Partitioner func(e *Event, n int) int32

// Default chooses as Apache Kafka's own producer does. Events with the same key, which may be
// empty, go to the same partition: Hash(key), with its sign bit cleared, modulo n. Events without a
// key may go to any; they stay with one for a while, so that batches are large, and then move on to
// another.
func Default(e *Event, n int) int32 {
	if e.Key == nil {
		return anywhere(n)
	}
	return (Hash(e.Key) & 0x7fffffff) % int32(n)
}

// stay is how many events without a key go to one partition before they move on.
const stay = 64

// keyless counts events without a key. It begins at a random number, so that processes that start
// together choose different partitions.
var keyless atomic.Uint64

func init() { chance.Begins(func() { keyless.Store(chance.Uint64()) }) }

// anywhere chooses by the number of events so far. The multiplication makes the order irregular: in
// a fixed round, a topic whose events always come at the same point of the round would always get
// the same partition.
func anywhere(n int) int32 {
	const golden = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio
	spell := (keyless.Add(1) / stay) * golden
	return int32((spell >> 32) % uint64(n))
}

// Hash is murmur2 of a key, bit by bit as in Apache Kafka's clients
// (org.apache.kafka.common.utils.Utils).
func Hash(key []byte) int32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		h = h*m ^ (k^k>>r)*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return int32(h ^ h>>15)
}
