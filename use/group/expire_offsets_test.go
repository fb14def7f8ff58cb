package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Peers cannot give signs of life while the store is away, however long that is. A sweep that comes
// before they can must not take them for gone.
func TestOffsetsOfPeersOutliveAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const every = 10 * time.Minute
		store := &faulty{Store: memory.New()}
		start := time.Now() // sweeps begin here
		b := startBroker(t, store, group.Config{}.With(group.Limits{OffsetRetention: time.Hour, ExpireEvery: every}))
		o := b.topic(t, "orders", 1)[0]
		p := joinPeer(t, b, group.PeerConfig{})
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 3)}))
		time.Sleep(time.Until(start.Add(every + time.Minute)))
		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(time.Until(start.Add(12*every - time.Millisecond))) // the next sweep comes before the next sign of life
		store.fail(nil, nil)
		time.Sleep(time.Minute)
		wantOffset(t, b, "g", o.TopicPartition, 3)
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 4)})) // and it is still a member
		time.Sleep(3 * time.Hour)
		wantOffset(t, b, "g", o.TopicPartition, 4)
	})
}

// A store that comes for a moment only, again and again, lets sweeps through and no peers: nobody
// is to blame for that silence.
func TestOffsetsOfPeersOutliveAnOutageWithSweeps(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const every = 10 * time.Minute
		store := &faulty{Store: memory.New()}
		start := time.Now() // sweeps begin here
		b := startBroker(t, store, group.Config{}.With(group.Limits{OffsetRetention: 2 * time.Hour, ExpireEvery: every}))
		o := b.topic(t, "orders", 1)[0]
		p := joinPeer(t, b, group.PeerConfig{})
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 3)}))
		time.Sleep(time.Until(start.Add(every + time.Minute)))
		store.fail(eventlog.ErrUnavailable, nil)
		for i := 2; i < 30; i++ { // 5 h
			time.Sleep(time.Until(start.Add(time.Duration(i)*every - time.Millisecond)))
			store.fail(nil, nil)
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			store.fail(eventlog.ErrUnavailable, nil)
		}
		store.fail(nil, nil)
		time.Sleep(time.Minute)
		wantOffset(t, b, "g", o.TopicPartition, 3)
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 4)})) // and it is still a member
	})
}

// Who was away with the process, or with the store, comes back in its own time: what a sweep finds
// just then is not forgotten yet.
func TestNothingExpiresBeforeItsUsersCouldComeBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const every = 10 * time.Minute
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		commit(t, b, "g", at(o, 3))
		b.stop()
		time.Sleep(8 * day)
		start := time.Now()
		b = startBroker(t, store, group.Config{})
		time.Sleep(every / 2)
		wantOffset(t, b, "g", o.TopicPartition, 3)
		commit(t, b, "g", at(o, 4))

		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(time.Until(start.Add(8*day + every/2)))
		store.fail(nil, nil)
		time.Sleep(every)
		synctest.Wait()
		wantOffset(t, b, "g", o.TopicPartition, 4)
		time.Sleep(every)
		wantOffset(t, b, "g", o.TopicPartition, -1)
	})
}

// A process that was stopped for long does not know the topics that came meanwhile. What is
// committed in them is not left over from deleted ones.
func TestOffsetsInATopicThatThisProcessHasNotHeardOfStay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		behind := startFollowing(t, store, group.Config{}, 24*time.Hour) // it hears of nothing
		b := startFollowing(t, store, group.Config{}, time.Second)
		o := b.topic(t, "orders", 1)[0]
		commit(t, b, "g", at(o, 3))
		time.Sleep(time.Hour)
		wantOffset(t, b, "g", o.TopicPartition, 3)
		if all, err := behind.Fetch(t.Context(), "g", nil); err != nil || len(all) != 1 {
			t.Errorf("through the process that is behind the group has %+v, %v", all, err)
		}
	})
}

// A process dies when its peer has sent a heartbeat and the group has no state yet. Nobody joins
// that group again.
func TestAHeartbeatWithoutAGroupGoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{Group: "lives"})
		cfg := group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet}
		_, err := b.JoinPeer(t.Context(), cfg) // it never runs
		check(t, err)
		kv, err := b.log.Get(t.Context(), group.StateKey("g"))
		check(t, err)
		_, err = b.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{{Key: kv.Key}}})
		check(t, err)
		if left := stored(t, b, "group/member/"); len(left) != 2 {
			t.Fatalf("there are %v, want two heartbeats", left)
		}
		time.Sleep(30 * time.Minute)
		if left := stored(t, b, "group/member/"); len(left) != 1 {
			t.Errorf("there are %v, want the one of the peer that lives", left)
		}
		wantHas(t, p, "orders:0")
	})
}

// Peers stay for long, while topics come and go: what their group committed in a topic goes after
// the topic, and nothing else does.
func TestOffsetsOfPeersDoNotOutliveTheirTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		kept := b.topic(t, "kept", 1)[0]
		orders := b.topic(t, "orders", 1)[0]
		p := joinPeer(t, b, group.PeerConfig{Topics: []string{"kept", "orders"}})
		check(t, p.Commit(t.Context(), []group.Committed{at(kept, 3), at(orders, 4)}))
		check(t, b.log.DeleteTopic(t.Context(), "orders"))
		b.topic(t, "orders", 1)
		time.Sleep(time.Minute)
		before := p.Generation()
		time.Sleep(30 * time.Minute)
		left, err := store.List(t.Context(), "group/offset/", "", 10)
		check(t, err)
		if len(left) != 1 {
			t.Errorf("the store has %d offsets, want 1: %v", len(left), left)
		}
		wantOffset(t, b, "g", kept.TopicPartition, 3)
		wantHas(t, p, "kept:0 orders:0")
		if after := p.Generation(); after != before {
			t.Errorf("the group went from generation %d to %d", before, after)
		}
		check(t, p.Commit(t.Context(), []group.Committed{at(kept, 5)}))
		wantOffset(t, b, "g", kept.TopicPartition, 5)
	})
}
