package group

import (
	"encoding/binary"
	"maps"
	"slices"
)

// consumerProtocol is the protocol type of Kafka's consumers. weir can read their members'
// metadata and assignments; those of other types (Connect, ...) are only bytes.
const consumerProtocol = "consumer"

// reading is partitions by topic.
type reading map[string][]int32

// subscription is what weir reads of a consumer's subscription.
type subscription struct {
	topics []string
	owned  reading // the partitions that it kept
}

// readSubscription reads a consumer's subscription, of all versions:
//
//	version int16 │ topics: count int32 { length int16, name } │ user data: length int32, bytes │
//	from version 1: owned: count int32 { length int16, name │ count int32 { partition int32 } } │ ...
func readSubscription(raw []byte) (s subscription, ok bool) {
	r := fields{rest: raw}
	version := r.int16()
	for n := r.int32(); n > 0 && !r.short; n-- {
		s.topics = append(s.topics, r.string())
	}
	ok = !r.short
	if r.take(max(0, int(r.int32()))); version >= 1 && !r.short {
		s.owned = r.reading()
	}
	return s, ok
}

// assigned reads a consumer's assignment; of a broken one, as much as can be read.
//
//	version int16 │ topics: count int32 { length int16, name │ count int32 { partition int32 } } │ ...
func assigned(assignment []byte) reading {
	r := fields{rest: assignment}
	r.int16()
	return r.reading()
}

// subscriptionOf returns the subscription that a consumer of these topics would send, in version 0.
func subscriptionOf(topics []string) []byte {
	b := append16(nil, 0)
	b = append32(b, len(topics))
	for _, t := range topics {
		b = append(append16(b, len(t)), t...)
	}
	return append32(b, -1) // no user data
}

// assignmentOf returns the assignment that a consumer would get, in version 0.
func assignmentOf(r reading) []byte {
	b := append16(nil, 0)
	b = append32(b, len(r))
	for _, topic := range slices.Sorted(maps.Keys(r)) {
		b = append(append16(b, len(topic)), topic...)
		b = append32(b, len(r[topic]))
		for _, n := range r[topic] {
			b = append32(b, int(n))
		}
	}
	return append32(b, -1) // no user data
}

func append16(b []byte, n int) []byte { return binary.BigEndian.AppendUint16(b, uint16(n)) }
func append32(b []byte, n int) []byte { return binary.BigEndian.AppendUint32(b, uint32(n)) }

// fields reads big-endian fields and remembers if they ran short.
type fields struct {
	rest  []byte
	short bool
}

func (r *fields) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.short, r.rest = true, nil
		return make([]byte, 4)[:max(0, min(n, 4))]
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *fields) reading() reading {
	out := reading{}
	for n := r.int32(); n > 0 && !r.short; n-- {
		topic := r.string()
		for m := r.int32(); m > 0 && !r.short; m-- {
			if p := r.int32(); !r.short {
				out[topic] = append(out[topic], p)
			}
		}
	}
	return out
}

func (r *fields) int16() int16   { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *fields) int32() int32   { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *fields) string() string { return string(r.take(int(r.int16()))) }
