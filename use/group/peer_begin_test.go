package group_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Peers that have read nothing write nothing for each partition. What they leave is one key, with
// the generation, which must not come again while a suspended peer may still commit with it.
func TestPeersThatReadNothingLeaveNoOffsets(t *testing.T) {
	for _, latest := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			store := memory.New()
			b := startBroker(t, store, group.Config{}.With(group.Limits{OffsetRetention: time.Hour, ExpireEvery: time.Minute}))
			b.topic(t, "orders", 1000)
			p := joinPeer(t, b, group.PeerConfig{FromLatest: latest})
			if n := len(p.Assignment().Own); n != 1000 {
				t.Fatalf("it has %d partitions", n)
			}
			kvs, err := store.List(t.Context(), "group/offset/", "", 2000)
			check(t, err)
			if want := map[bool]int{true: 1}[latest]; len(kvs) != want {
				t.Errorf("latest %v: a group that has read nothing has %d offsets, want %d", latest, len(kvs), want)
			}
			check(t, p.stop())
			left := func() []eventlog.KeyValue {
				kvs, err := store.List(t.Context(), "group/", "", 2000)
				check(t, err)
				return kvs
			}
			if kvs := left(); !latest && len(kvs) != 1 {
				t.Errorf("after the last peer has left: %d keys, such as %v", len(kvs), kvs[:min(len(kvs), 2)])
			}
			time.Sleep(50 * time.Minute)
			if kvs := left(); !latest && len(kvs) != 1 {
				t.Errorf("before the retention is over: %d keys", len(kvs))
			}
			time.Sleep(20 * time.Minute)
			if kvs := left(); len(kvs) != 0 {
				t.Errorf("after the retention: %d keys, such as %v", len(kvs), kvs[:min(len(kvs), 2)])
			}
		})
	}
}

// A group that begins at the end remembers where that was in each partition that held records; in
// others it begins with their first record.
func TestTheEndsOfAllPartitionsAreRemembered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		publish(t, b, topic.Partitions[1], "old")
		publish(t, b, topic.Partitions[3], "old", "older")
		p := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		for n := range 4 { // p goes before it handles them
			publish(t, b, topic.Partitions[n], "new")
		}
		check(t, p.stop())
		q := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		for n, want := range []eventlog.Offset{0, 1, 0, 2} {
			if got := q.Assignment().Own[n].Position; got != want {
				t.Errorf("partition %d goes on at %d, want %d", n, got, want)
			}
		}
	})
}
