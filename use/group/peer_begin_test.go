package group_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Peers that have read nothing write nothing for each partition, also if all of them hold records.
// What they leave is one key with the generation, which must not come again while a suspended peer
// may still commit with it, and one with the ends of a topic's partitions, if they begin there.
func TestPeersThatReadNothingLeaveNoOffsets(t *testing.T) {
	for _, latest := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			store := memory.New()
			b := startBroker(t, store, group.Config{}.With(group.Limits{OffsetRetention: time.Hour, ExpireEvery: time.Minute}))
			b.topic(t, "orders", 1000)
			topic, err := b.log.Topic(t.Context(), "orders")
			check(t, err)
			for _, partition := range topic.Partitions {
				publish(t, b, partition, "old")
			}
			p := joinPeer(t, b, group.PeerConfig{FromLatest: latest})
			if n := len(p.Assignment().Own); n != 1000 {
				t.Fatalf("it has %d partitions", n)
			}
			kvs, err := store.List(t.Context(), "group/", "", 2000)
			check(t, err)
			for _, kv := range kvs {
				if len(kv.Value) > 8000 {
					t.Errorf("latest %v: %q has %d bytes", latest, kv.Key, len(kv.Value))
				}
			}
			want := 2 // its state and the peer's heartbeat
			if latest {
				want++
			}
			if len(kvs) != want {
				t.Errorf("latest %v: a group that has read nothing has %d keys, want %d", latest, len(kvs), want)
			}
			check(t, p.stop())
			left := func() []eventlog.KeyValue {
				kvs, err := store.List(t.Context(), "group/", "", 2000)
				check(t, err)
				return kvs
			}
			if kvs := left(); len(kvs) != want-1 {
				t.Errorf("after the last peer has left: %d keys, such as %v", len(kvs), kvs[:min(len(kvs), 2)])
			}
			time.Sleep(50 * time.Minute)
			if kvs := left(); len(kvs) != want-1 {
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

// A group without members has an offset in one partition that somebody commits now and then. In the
// others it goes on where it began, however long ago that was, and not with their first records.
func TestWhereAGroupBeganStaysWhileItHasAnOffsetInTheTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		offsets := b.topic(t, "orders", 2)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		publish(t, b, topic.Partitions[1], "old")
		check(t, joinPeer(t, b, group.PeerConfig{FromLatest: true}).stop())
		for range 10 {
			commit(t, b, "g", at(offsets[0], 0))
			time.Sleep(day)
		}
		wantOffset(t, b, "g", offsets[1].TopicPartition, 1)
		p := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		if got := p.Assignment().Own[1].Position; got != 1 {
			t.Errorf("it goes on at %d, want 1", got)
		}
		check(t, p.stop())
		time.Sleep(10 * day)
		wantOffset(t, b, "g", offsets[0].TopicPartition, -1)
		wantOffset(t, b, "g", offsets[1].TopicPartition, -1)
	})
}

// Where a group began counts as committed, for everybody who asks, until something is.
func TestWhereAGroupBeganIsItsOffset(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 3)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		publish(t, b, topic.Partitions[1], "old")
		p := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		publish(t, b, topic.Partitions[1], "new", "newer")
		in := func(n int32) group.TopicPartition { return group.TopicPartition{Topic: topic.ID, Partition: n} }
		want := func(when string, want ...eventlog.Offset) {
			t.Helper()
			all, err := b.Fetch(t.Context(), "g", nil)
			check(t, err)
			some, err := b.Fetch(t.Context(), "g", []group.TopicPartition{in(0), in(1), in(2)})
			check(t, err)
			there := make(map[int32]eventlog.Offset)
			for _, o := range all {
				there[o.Partition] = o.Offset
			}
			for n, o := range want {
				if got, is := there[int32(n)]; some[n].Offset != o || is != (o >= 0) || is && got != o {
					t.Errorf("%s: all %v, some %+v, want %d", when, there, some, want)
					return
				}
			}
		}
		want("at first", 0, 1, 0)
		_, lags, err := b.Stats(t.Context())
		check(t, err)
		behind := int64(0)
		for _, lag := range lags {
			behind += lag.Records
		}
		if len(lags) != 3 || behind != 2 {
			t.Errorf("lag: %+v", lags)
		}
		check(t, p.Commit(t.Context(), []group.Committed{{TopicPartition: in(1), Offset: 2, LeaderEpoch: -1}}))
		want("after a commit", 0, 2, 0)
		check(t, p.stop())
		errs, err := b.DeleteOffsets(t.Context(), "g", []group.Committed{{Name: "orders", TopicPartition: in(1)}})
		check(t, errors.Join(append(errs, err)...))
		want("after the deletion of an offset", 0, -1, 0)
		check(t, b.Delete(t.Context(), "g"))
		want("after the deletion of the group", -1, -1, -1)
		q := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		if own := q.Assignment().Own; own[1].Position != 3 {
			t.Errorf("the new group begins with %+v", own)
		}
	})
}

// Everybody who may read may name new groups: their number has a bound.
func TestTheStoreHasSoManyGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{StoredMax: 2, OffsetRetention: time.Hour, ExpireEvery: time.Minute}))
		offsets := b.topic(t, "orders", 1)
		commit := func(name string) error {
			_, err := b.Commit(t.Context(), group.Commit{Group: name, Generation: -1, Offsets: offsets})
			return err
		}
		full := func() {
			t.Helper()
			wantErr(t, commit("third"), group.ErrTooMany)
			wantErr(t, newPlayer(b, "third", "p").enter(t.Context()), group.ErrTooMany)
			_, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "third", Topics: []string{"orders"}})
			wantErr(t, err, group.ErrTooMany)
		}
		check(t, commit("first"))
		check(t, joinPeer(t, b, group.PeerConfig{}).stop())
		full()
		check(t, commit("first"))
		check(t, joinPeer(t, b, group.PeerConfig{}).stop())
		time.Sleep(5 * time.Minute) // sweeps
		full()
		check(t, b.Delete(t.Context(), "first"))
		check(t, commit("third"))
		wantErr(t, commit("fourth"), group.ErrTooMany)
		time.Sleep(2 * time.Hour) // they expire
		check(t, commit("fifth"))
	})
}
