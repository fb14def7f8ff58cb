package broker

import (
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/weir-log/weir/eventlog"
)

// View is the brokers that live, at one time. It does not change.
type View struct {
	self    *Broker
	brokers []Broker // by id; without this one once it has left, or while another process has its address
	beside  []Broker // by id: others that live for certain and are advertised at an address of this one
	unnamed []Broker // by id: others that live, of which clients of this one are not told
	alive   []Broker // by id: all that live, wherever they are
}

// Alone returns the view of a broker on a store that it shares with nobody.
func Alone(id int32) *View {
	self := &Broker{ID: id}
	return &View{self: self, brokers: []Broker{*self}}
}

// Self returns this broker's id.
func (v *View) Self() int32 { return v.self.ID }

// Rack returns this broker's rack; empty if it has none.
func (v *View) Rack() string { return v.self.Rack }

// Brokers returns the brokers that live and of which clients are told, by id.
func (v *View) Brokers() []Broker { return v.brokers }

// All returns the brokers that live, by id, also those of which clients are not told.
func (v *View) All() []Broker { return v.alive }

func (v *View) ids() (ids []int32) {
	for _, b := range v.brokers {
		ids = append(ids, b.ID)
	}
	return ids
}

// Is reports whether a broker is this process.
func (v *View) Is(b Broker) bool { return b.Life == v.self.Life }

// named reports whether clients are told of this process.
func (v *View) named() bool { return slices.ContainsFunc(v.brokers, v.Is) }

// AtOurAddress reports whether clients that are sent to a broker may reach this process, although
// it is another one.
func (v *View) AtOurAddress(b Broker) bool { return !v.Is(b) && v.self.shares(b) }

// Has reports whether a broker lives.
func (v *View) Has(id int32) bool {
	return slices.ContainsFunc(v.brokers, func(b Broker) bool { return b.ID == id })
}

// Leader returns the broker that clients use for a partition.
func (v *View) Leader(p eventlog.Partition) int32 { return choose(v.brokers, partitionKey(p)).ID }

// Nearest returns the broker from which clients in a rack read a partition: the leader, or another
// one if it is in the rack and the leader is not (KIP-392). false: none is.
func (v *View) Nearest(p eventlog.Partition, rack string) (id int32, ok bool) {
	var near []Broker
	for _, b := range v.brokers {
		if b.Rack == rack && rack != "" {
			near = append(near, b)
		}
	}
	if len(near) == 0 {
		return 0, false
	}
	if leader := v.Leader(p); slices.ContainsFunc(near, func(b Broker) bool { return b.ID == leader }) {
		return leader, true
	}
	return choose(near, partitionKey(p)).ID, true
}

// Replicas returns the brokers from which clients of any rack read a partition, the leader first.
func (v *View) Replicas(p eventlog.Partition) []int32 {
	all := []int32{v.Leader(p)}
	for _, b := range v.brokers {
		if near, is := v.Nearest(p, b.Rack); is && !slices.Contains(all, near) {
			all = append(all, near)
		}
	}
	return all
}

func partitionKey(p eventlog.Partition) []byte {
	return binary.BigEndian.AppendUint64([]byte("p"), uint64(p))
}

// Coordinator returns the broker that coordinates a group.
func (v *View) Coordinator(group string) Broker {
	return choose(v.brokers, append([]byte("g"), group...))
}

// choose draws a broker for the bytes in what, by rendezvous hashing: all brokers with the same
// view draw the same, and when a broker joins or leaves, only its own share moves.
func choose(brokers []Broker, what []byte) (chosen Broker) {
	highest, first := uint64(0), true
	for _, b := range brokers {
		h := fnv.New64a()
		h.Write(what)
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(b.ID)))
		if weight := mix(h.Sum64()); first || weight > highest {
			highest, chosen, first = weight, b, false
		}
	}
	return chosen
}

// mix spreads the bits of a hash: FNV alone leaves similar inputs with similar high bits. It is the
// finalizer of MurmurHash3.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
