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

// subscribed reads the topics out of a consumer's subscription. All versions begin alike:
//
//	version int16 │ topics: count int32 { length int16, name } │ ...
func subscribed(subscription []byte) (topics []string, ok bool) {
	r := fields{rest: subscription}
	r.int16()
	for n := r.int32(); n > 0 && !r.short; n-- {
		topics = append(topics, r.string())
	}
	return topics, !r.short
}

// assigned reads a consumer's assignment; of a broken one, as much as can be read.
//
//	version int16 │ topics: count int32 { length int16, name │ count int32 { partition int32 } } │ ...
func assigned(assignment []byte) reading {
	out := reading{}
	r := fields{rest: assignment}
	r.int16()
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

func (r *fields) int16() int16   { return int16(binary.BigEndian.Uint16(r.take(2))) }
func (r *fields) int32() int32   { return int32(binary.BigEndian.Uint32(r.take(4))) }
func (r *fields) string() string { return string(r.take(int(r.int16()))) }
