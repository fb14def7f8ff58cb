package group_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// A store that was rewound has the last commits no more, or a transaction that said that it had
// committed a position. A peer begins those partitions again at what is left, and goes on in the
// others.
func TestAPeerBeginsAgainWhereTheStoreLostItsPosition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		b.topic(t, "orders", 3)
		p := joinPeer(t, b, group.PeerConfig{Topics: []string{"orders"}})
		time.Sleep(time.Second)
		before := p.Assignment().Own
		if len(before) != 3 {
			t.Fatalf("%+v", before)
		}
		commit := func(a group.Assigned, next eventlog.Offset) error {
			return p.Commit(t.Context(), []group.Committed{{TopicPartition: a.TopicPartition, Offset: next, LeaderEpoch: -1, Since: a.Since}})
		}
		for _, a := range before {
			check(t, commit(a, 1))
		}
		restore := store.Backup()
		check(t, commit(before[0], 3))
		p.Claimed(before[1].TopicPartition, before[1].Since, 2, b.log.LeaderEpoch())
		restore(false)
		for i, want := range []error{group.ErrFenced, group.ErrFenced, nil} {
			if err := commit(before[i], 4); !errors.Is(err, want) {
				t.Errorf("partition %d: a commit in the new epoch: %v, want %v", i, err, want)
			}
		}
		time.Sleep(2 * time.Second)
		for i, a := range p.Assignment().Own {
			if lost, again := i < 2, a.Since != before[i].Since; lost != again {
				t.Errorf("partition %d: %+v, before %+v", i, a, before[i])
			}
			if want := [...]eventlog.Offset{1, 1, 4}[i]; a.Position != want {
				t.Errorf("partition %d begins at %d, not %d", i, a.Position, want)
			}
			check(t, commit(a, 5))
		}
	})
}

// A commit is judged, and then the log enters another epoch, in which the store lacks the commit
// before it: it is not taken, although the group's version is the same.
func TestNoCommitGoesOnFromOneThatIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		o := b.topic(t, "orders", 1)[0]
		p := joinPeer(t, b, group.PeerConfig{})
		time.Sleep(time.Second)
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 1)}))
		restore := store.Backup()
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 2)}))
		next := at(o, 3)
		next.Metadata = "once"
		err := p.CommitWith(t.Context(), []group.Committed{next}, func(context.Context, *eventlog.Entry) error {
			changed := b.log.IncarnationChanged()
			restore(false)
			<-changed
			return nil
		})
		if !errors.Is(err, group.ErrFenced) {
			t.Errorf("a commit that goes on from a lost one: %v", err)
		}
		wantOffset(t, b, "g", o.TopicPartition, 1)
	})
}

// An epoch in which nothing is lost changes nothing for peers, also where the group has committed
// nothing yet.
func TestAnEpochWithoutALossLeavesPeersAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		b.topic(t, "orders", 2)
		p := joinPeer(t, b, group.PeerConfig{})
		time.Sleep(time.Second)
		before := p.Assignment().Own
		check(t, p.Commit(t.Context(), []group.Committed{{TopicPartition: before[0].TopicPartition, Offset: 1, LeaderEpoch: -1}}))
		beginEpoch(t, store, b)
		time.Sleep(2 * time.Second)
		own := p.Assignment().Own
		for i, a := range own {
			if a.Since != before[i].Since {
				t.Errorf("%+v began again; before %+v", a, before[i])
			}
		}
		if len(own) != len(before) {
			t.Errorf("%+v, want %+v", own, before)
		}
	})
}

// The same for a partition that another peer waits for: it is still to be given back, and the next
// peer begins at what is left.
func TestALostPositionIsNotHandedOver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		b.topic(t, "orders", 2)
		p := joinPeer(t, b, group.PeerConfig{})
		time.Sleep(time.Second)
		commit := func(a group.Assigned, next eventlog.Offset) error {
			return p.Commit(t.Context(), []group.Committed{{TopicPartition: a.TopicPartition, Offset: next, LeaderEpoch: -1, Since: a.Since}})
		}
		for _, a := range p.Assignment().Own {
			check(t, commit(a, 1))
		}
		next := joinPeer(t, b, group.PeerConfig{})
		time.Sleep(5 * time.Second)
		revoked := p.Assignment().Revoking
		if len(revoked) != 1 {
			t.Fatalf("%+v", p.Assignment())
		}
		restore := store.Backup()
		check(t, commit(revoked[0], 3))
		restore(false)
		if err := commit(revoked[0], 4); !errors.Is(err, group.ErrFenced) {
			t.Errorf("a commit that goes on from what is lost: %v", err)
		}
		again := p.Assignment().Revoking
		if len(again) != 1 || again[0].Since == revoked[0].Since || again[0].Position != 1 {
			t.Errorf("to be given back is %+v, and was %+v", again, revoked)
		}
		check(t, p.Release(t.Context(), revoked[0].TopicPartition))
		time.Sleep(5 * time.Second)
		if own := next.Assignment().Own; len(own) != 1 || own[0].TopicPartition != revoked[0].TopicPartition || own[0].Position != 1 {
			t.Errorf("the next peer has %+v", own)
		}
	})
}
