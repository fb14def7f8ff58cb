package group_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

func newStatic(b *broker, name, instance string) *player {
	p := newPlayer(b, name, instance)
	p.join.Instance = instance
	return p
}

// A static member that restarts within its session gets its partitions back, and nobody else
// notices (KIP-345).
func TestStaticMemberComesBackWithoutARebalance(t *testing.T) {
	for _, role := range []string{"leader", "follower"} {
		t.Run(role, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := startBroker(t, memory.New(), group.Config{})
				o := b.topic(t, "orders", 1)[0]
				p, q := newStatic(b, "g", "p"), newStatic(b, "g", "q")
				settle(t, p, q)
				if (p.joined.Leader == p.join.Member) != (role == "leader") {
					p, q = q, p
				}
				time.Sleep(session - time.Second)
				check(t, q.beat(t.Context()))
				again := newStatic(b, "g", p.join.Instance)
				check(t, again.enter(t.Context()))
				if again.joined.Generation != 1 || again.joined.SkipAssignment != (role == "leader") {
					t.Fatalf("joined again: %+v", again.joined)
				}
				if n := len(again.joined.Members); n != 0 && role == "follower" || n != 2 && role == "leader" {
					t.Fatalf("a %s is told of %d members", role, n)
				}
				check(t, again.sync(t.Context()))
				if again.assigned != p.assigned {
					t.Fatalf("assigned %q, was %q", again.assigned, p.assigned)
				}
				check(t, q.beat(t.Context()))
				check(t, again.commit(t.Context(), o))
				wantErr(t, p.beat(t.Context()), group.ErrFencedInstance)
				wantErr(t, p.commit(t.Context(), o), group.ErrFencedInstance)
				wantErr(t, p.sync(t.Context()), group.ErrFencedInstance)
				wantErr(t, p.enter(t.Context()), group.ErrFencedInstance)
				time.Sleep(session - time.Second) // its session is as long as any
				check(t, again.beat(t.Context()))
			})
		})
	}
}

// Before version 9 of the join, a leader that comes back cannot be told to skip the assignment: it
// is not told that it leads.
func TestOldStaticLeaderComesBackAsFollower(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p := newStatic(b, "g", "p")
		settle(t, p)
		again := newStatic(b, "g", "p")
		again.join.SkipsAssigning = false
		check(t, again.enter(t.Context()))
		if again.joined.Leader == again.joined.Member || again.joined.SkipAssignment || len(again.joined.Members) > 0 {
			t.Fatalf("joined again: %+v", again.joined)
		}
		check(t, again.sync(t.Context()))
		if again.assigned != p.assigned {
			t.Fatalf("assigned %q, was %q", again.assigned, p.assigned)
		}
	})
}

func TestStaticMemberKeepsItsPlaceOverABrokerRestart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		p, q := newStatic(b, "g", "p"), newStatic(b, "g", "q")
		settle(t, p, q)
		b.stop()
		b = startBroker(t, store, group.Config{})
		again := newStatic(b, "g", "p")
		check(t, again.enter(t.Context()))
		check(t, again.sync(t.Context()))
		if again.assigned != p.assigned || again.joined.Generation != p.joined.Generation {
			t.Fatalf("joined %+v with %q, was %q", again.joined, again.assigned, p.assigned)
		}
		b.stop()
		b = startBroker(t, store, group.Config{}) // its new id was kept, too
		p.b, again.b = b, b
		check(t, again.beat(t.Context()))
		wantErr(t, p.beat(t.Context()), group.ErrFencedInstance)
	})
}

func TestStaticMemberWithAnotherProtocolRebalances(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p := newStatic(b, "g", "p")
		settle(t, p)
		again := newStatic(b, "g", "p")
		again.join.Protocols = append([]group.Protocol{{Name: "sticky"}}, again.join.Protocols...)
		settle(t, again)
		if again.joined.Generation != 2 || again.joined.Protocol != "sticky" {
			t.Fatalf("joined again: %+v", again.joined)
		}
	})
}

// Static members that are silent in a rebalance keep their partitions until their sessions end.
func TestSilentStaticMemberStaysForItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newStatic(b, "g", "p"), newStatic(b, "g", "q")
		p.join.Session, q.join.Session = time.Minute, time.Minute
		p.join.Rebalance, q.join.Rebalance = 20*time.Second, 20*time.Second
		settle(t, p, q)
		start := time.Now()
		late := newPlayer(b, "g", "late")
		late.join.Rebalance = 20 * time.Second
		check(t, late.enter(t.Context()))
		if took := time.Since(start); took != 20*time.Second {
			t.Fatalf("joined after %v, want the rebalance timeout", took)
		}
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		if len(d.Members) != 3 {
			t.Fatalf("members: %+v", d.Members)
		}
	})
}

func TestOperatorRemovesAStaticMember(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p := newStatic(b, "g", "p")
		settle(t, p)
		errs, err := b.Leave(t.Context(), "g", []group.Leaver{{Instance: "p", Member: "stranger"}, {Instance: "p"}})
		check(t, err)
		wantErr(t, errs[0], group.ErrFencedInstance)
		check(t, errs[1])
		wantErr(t, p.beat(t.Context()), group.ErrUnknownMember)
	})
}
