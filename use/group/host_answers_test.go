package group_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Answers of a host that are lost, and those that it cannot give.

// lost is a heartbeat whose answer does not come.
func (m *kafkaMember) lost(t *testing.T) {
	t.Helper()
	sent := *m
	check(t, sent.beat(t.Context()))
}

// Between two lost answers another member gives a partition up, so that they have different epochs.
func TestAMemberGoesOnAfterTwoLostAnswers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 8)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		check(t, one.beat(t.Context()))
		all := one.has
		check(t, two.beat(t.Context()))
		check(t, one.beat(t.Context()))
		if len(one.has) != 4 {
			t.Fatalf("it is to keep %v of %v", one.has, all)
		}
		for _, tp := range all { // it gives up two first
			if !slices.Contains(one.has, tp) && len(one.has) < 6 {
				one.has = append(slices.Clip(one.has), tp)
			}
		}
		check(t, one.beat(t.Context()))
		two.lost(t)
		check(t, one.beat(t.Context()))
		two.lost(t)
		check(t, two.beat(t.Context()))
		if len(one.has) != 4 || len(two.has) != 4 {
			t.Errorf("they have %v and %v", one.has, two.has)
		}
	})
}

// A member that is told its old epoch again, since it may not know of what it is to give up, goes
// on with that epoch also if the next answer is lost.
func TestAMemberGoesOnAfterALostAnswerToItsOldEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		for _, m := range []*kafkaMember{one, two, one, one, two} {
			check(t, m.beat(t.Context()))
		}
		kept, epoch := slices.Clone(one.has), one.epoch
		if len(kept) != 2 || len(two.has) != 2 {
			t.Fatalf("they have %v and %v", kept, two.has)
		}
		two.epoch = -1
		check(t, two.beat(t.Context()))
		one.lost(t) // it has all four now
		three := &kafkaMember{b: b, id: "three"}
		check(t, three.beat(t.Context()))
		check(t, one.beat(t.Context()))
		if one.epoch != epoch || !slices.Equal(one.has, kept) {
			t.Fatalf("it is told epoch %d and %v; it has epoch %d and %v", one.epoch, one.has, epoch, kept)
		}
		one.lost(t)
		check(t, one.beat(t.Context()))
		check(t, three.beat(t.Context()))
		if !slices.Equal(one.has, kept) || len(three.has) != 2 {
			t.Errorf("they have %v and %v", one.has, three.has)
		}
	})
}

// A request for which there is nothing to write proves nothing about the store.
func TestAHostThatWasCutOffIsNotTrustedForWhatItDidNotWrite(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		name := "instance"
		static := func(epoch int32) {
			t.Helper()
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "static", Epoch: epoch, Instance: &name, ClientID: "static",
				Rebalance: time.Minute, Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
			check(t, err)
		}
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		static(0)
		static(-2)
		one.live(t, 10*time.Second)
		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(50 * time.Second)
		wantErr(t, one.beat(t.Context()), group.ErrUnavailable)
		static(-2) // it has left for a while already
		wantErr(t, one.beat(t.Context()), group.ErrUnavailable)
		store.fail(nil, nil)
	})
}

// stallingStore takes so long for a commit as it is told to.
type stallingStore struct {
	eventlog.Store
	by atomic.Int64
}

func (s *stallingStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(time.Duration(s.by.Load()))
	return s.Store.Commit(ctx, flush)
}

// A host whose heartbeats are stored too late cannot say what its members have, and hears them all
// the same: they are members still when it can.
func TestMembersThatAreHeardAndCannotBeAnsweredStay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &stallingStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		one, old := &kafkaMember{b: b, id: "one"}, newClassic(b, "old")
		old.join.Session = 45 * time.Second
		check(t, one.beat(t.Context()))
		check(t, old.rejoin(t.Context()))
		for range 4 {
			check(t, one.beat(t.Context()))
			old.live(t, 3*time.Second)
		}
		if len(one.has) != 2 || len(old.has) != 2 {
			t.Fatalf("they have %v and %v", one.has, old.has)
		}
		unanswered := 0
		ask := func() {
			t.Helper()
			time.Sleep(5 * time.Second)
			for _, err := range []error{one.beat(t.Context()), old.beat(t.Context())} {
				if err != nil {
					wantErr(t, err, group.ErrUnavailable)
					unanswered++
				}
			}
		}
		store.by.Store(int64(6 * time.Second))
		for range 36 {
			ask()
		}
		if unanswered < 40 {
			t.Fatalf("in three minutes they were not answered %d times: the test tests nothing", unanswered)
		}
		store.by.Store(0)
		for range 3 {
			ask()
		}
		check(t, one.beat(t.Context()))
		check(t, old.beat(t.Context()))
		if len(one.has) != 2 || len(old.has) != 2 {
			t.Errorf("they have %v and %v", one.has, old.has)
		}
	})
}
