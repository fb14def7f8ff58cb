package group_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Two brokers believe that they coordinate the group. The store knows better.
func TestOvertakenBrokerCannotCommit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a := startBroker(t, store, group.Config{})
		o := a.topic(t, "orders", 1)[0]
		zombie := newPlayer(a, "g", "zombie")
		zombie.join.Session, zombie.join.Rebalance = 30*time.Second, 5*time.Second
		settle(t, zombie)
		check(t, zombie.commit(t.Context(), at(o, 5)))

		b := startBroker(t, store, group.Config{})
		heir := newPlayer(b, "g", "heir")
		heir.join.Rebalance = 5 * time.Second
		settle(t, heir)                    // the zombie does not rejoin at b, and is left out
		check(t, zombie.beat(t.Context())) // at a, all looks well for a third of its session
		if heir.joined.Generation <= zombie.joined.Generation {
			t.Fatalf("generation %d follows %d", heir.joined.Generation, zombie.joined.Generation)
		}
		check(t, heir.commit(t.Context(), at(o, 10)))

		wantErr(t, zombie.commit(t.Context(), at(o, 6)), group.ErrUnknownMember)
		wantErr(t, zombie.beat(t.Context()), group.ErrUnknownMember)
		wantOffset(t, a, "g", o.TopicPartition, 10)
		wantOffset(t, b, "g", o.TopicPartition, 10)
	})
}

// A generation has one assignment, whoever hands it out.
func TestOvertakenBrokerCannotAssign(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a := startBroker(t, store, group.Config{})
		p := newPlayer(a, "g", "p")
		settle(t, p)
		check(t, p.enter(t.Context())) // generation 2, at a

		b := startBroker(t, store, group.Config{})
		q := newPlayer(b, "g", "q")
		q.join.Member = p.join.Member
		check(t, q.enter(t.Context())) // generation 2, at b
		check(t, q.sync(t.Context()))
		wantErr(t, p.sync(t.Context()), group.ErrMoved)
		check(t, p.sync(t.Context())) // and what it gets now is what b gave
		if p.assigned != q.assigned {
			t.Fatalf("one generation, and two assignments: %q, %q", p.assigned, q.assigned)
		}
	})
}

// G3: what a group has committed is one register, through whichever broker it is read and written.
func TestCommittedOffsetIsOneRegister(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		seed := rand.Uint64()
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		r := rand.New(rand.NewPCG(seed, 0))
		store := memory.New()
		brokers := []*broker{startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})}
		o := brokers[0].topic(t, "orders", 1)[0]
		_, err := brokers[0].Commit(t.Context(), simple("g", at(o, 0)))
		check(t, err)
		register := eventlog.Offset(0)
		for i := range 500 {
			b := brokers[r.IntN(2)]
			switch r.IntN(10) {
			case 0, 1, 2, 3:
				_, err := b.Commit(t.Context(), simple("g", at(o, eventlog.Offset(i))))
				check(t, err)
				register = eventlog.Offset(i)
			case 4:
				check(t, b.Delete(t.Context(), "g"))
				_, err := b.Commit(t.Context(), simple("g", at(o, eventlog.Offset(i))))
				check(t, err)
				register = eventlog.Offset(i)
			case 5:
				_, err := b.DeleteOffsets(t.Context(), "g", []group.Committed{o})
				check(t, err)
				register = -1
			default:
				wantOffset(t, b, "g", o.TopicPartition, register)
			}
			if t.Failed() {
				return
			}
		}
	})
}

// faulty is a store whose commits go wrong while told so.
type faulty struct {
	eventlog.Store
	mu     sync.Mutex // guards what follows
	before error      // instead of the commit
	after  error      // in spite of the commit
}

func (f *faulty) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	before, after := f.faults()
	if before != nil {
		return nil, before
	}
	out, err := f.Store.Commit(ctx, flush)
	if after != nil {
		return nil, after
	}
	return out, err
}

func (f *faulty) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if before, _ := f.faults(); before != nil {
		return nil, before
	}
	return f.Store.List(ctx, prefix, after, limit)
}

func (f *faulty) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if before, _ := f.faults(); before != nil {
		return nil, before
	}
	return f.Store.Get(ctx, keys, maxBytes)
}

func (f *faulty) faults() (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before, f.after
}

func (f *faulty) fail(before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

func TestStoreAwayDoesNotBreakTheGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		check(t, p.commit(t.Context(), at(o, 1)))

		store.fail(eventlog.ErrUnavailable, nil)
		for range 10 { // a minute
			p.beatThrough(t, time.Now().Add(3*time.Second))
			q.beatThrough(t, time.Now().Add(3*time.Second))
		}
		wantErr(t, p.commit(t.Context(), at(o, 2)), group.ErrUnavailable)
		_, err := b.Fetch(t.Context(), "g", nil)
		wantErr(t, err, group.ErrLoading)
		_, err = b.Describe(t.Context(), "other")
		wantErr(t, err, group.ErrLoading)
		check(t, b.Heartbeat(t.Context(), group.Beat{Group: "other", Member: "m"})) // nobody is told off while nothing is known

		store.fail(nil, nil)
		p.beatThrough(t, time.Now().Add(session/2))
		check(t, p.beat(t.Context()))
		check(t, q.beat(t.Context()))
		wantOffset(t, b, "g", o.TopicPartition, 1)
		check(t, p.commit(t.Context(), at(o, 3)))
		wantOffset(t, b, "g", o.TopicPartition, 3)
	})
}

// An outage is over with the first commit that the store takes: from then on silent members have
// one session, however rarely the store is polled.
func TestASilentMemberIsNotSparedForeverAfterAnOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p, silent := newPlayer(b, "g", "p"), newPlayer(b, "g", "silent")
		settle(t, p, silent)

		store.fail(eventlog.ErrUnavailable, nil)
		wantErr(t, p.commit(t.Context(), at(o, 1)), group.ErrUnavailable)
		store.fail(nil, nil)
		check(t, p.commit(t.Context(), at(o, 2)))
		for range 20 { // a minute; a session has ten seconds
			time.Sleep(3 * time.Second)
			if err := p.beat(t.Context()); errors.Is(err, group.ErrRebalancing) {
				return // the silent one was removed
			}
		}
		t.Error("a member that has been silent for a minute is still one")
	})
}

func TestAssignmentWaitsForTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		p := newPlayer(b, "g", "p")
		check(t, p.enter(t.Context()))
		store.fail(eventlog.ErrUnavailable, nil)
		wantErr(t, p.sync(t.Context()), group.ErrUnavailable)
		store.fail(nil, nil)
		check(t, p.enter(t.Context())) // as clients do
		if p.joined.Generation != 1 {
			t.Fatalf("the store was away, and the group went on to generation %d", p.joined.Generation)
		}
		check(t, p.sync(t.Context()))
	})
}

// The answer to a commit was lost. Nobody may say that it did not happen, and whatever did is what
// is read.
func TestUnknownOutcomeIsReadFromTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := newPlayer(b, "g", "p")
		settle(t, p)

		store.fail(nil, eventlog.ErrUnsure)
		wantErr(t, p.commit(t.Context(), at(o, 2)), group.ErrMoved)
		store.fail(nil, nil)
		wantOffset(t, b, "g", o.TopicPartition, 2)
		check(t, p.beat(t.Context())) // and the member is still one
		check(t, p.commit(t.Context(), at(o, 3)))

		check(t, p.enter(t.Context()))
		store.fail(nil, eventlog.ErrUnsure)
		wantErr(t, p.sync(t.Context()), group.ErrMoved)
		store.fail(nil, nil)
		check(t, p.sync(t.Context())) // the assignment had arrived
		wantOffset(t, b, "g", o.TopicPartition, 3)
	})
}

// A commit that was under way while a peer gave its partition back, and got it again, is not one of
// what it has now.
func TestACommitOfWhatWasGivenBackIsFenced(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		o := b.topic(t, "orders", 1)[0]
		p := joinPeer(t, b, group.PeerConfig{})
		before := p.Assignment().Own[0].Since
		check(t, p.Commit(t.Context(), []group.Committed{at(o, 5)}))
		check(t, p.Release(t.Context(), o.TopicPartition))
		synctest.Wait()
		late, now := at(o, 3), at(o, 6)
		late.Since, now.Since = before, p.Assignment().Own[0].Since
		wantErr(t, p.Commit(t.Context(), []group.Committed{late}), group.ErrFenced)
		wantOffset(t, b, "g", o.TopicPartition, 5)
		check(t, p.Commit(t.Context(), []group.Committed{now}))
		wantOffset(t, b, "g", o.TopicPartition, 6)
	})
}

// A commit of a group without members whose answer was lost does not undo what was committed since,
// whoever took that: a process that knows of the lost one, one that has made room for other groups
// since, or another one.
func TestALostCommitOfAGroupWithoutMembersUndoesNothing(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, a, b *broker) *broker{
		"through the same process": func(t *testing.T, a, b *broker) *broker { return a },
		"after it made room for other groups": func(t *testing.T, a, b *broker) *broker {
			other := a.topic(t, "others", 1)[0]
			_, err := a.Commit(t.Context(), simple("other", at(other, 1)))
			check(t, err)
			return a
		},
		"through another process": func(t *testing.T, a, b *broker) *broker { return b },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := &lateStore{Store: memory.New()}
				a, b := startBroker(t, store, group.Config{}.With(group.Limits{GroupsMax: 1})), startBroker(t, store, group.Config{})
				o := a.topic(t, "orders", 1)[0]
				for i, by := range []*broker{b, a} {
					_, err := by.Commit(t.Context(), simple("g", at(o, eventlog.Offset(1+i))))
					check(t, err)
				}
				synctest.Wait()
				store.armed = true
				_, err := a.Commit(t.Context(), simple("g", at(o, 5)))
				wantErr(t, err, eventlog.ErrUnsure)
				by := next(t, a, b)
				_, err = by.Commit(t.Context(), simple("g", at(o, 6)))
				check(t, err)
				_, err = store.Store.Commit(t.Context(), store.late)
				check(t, err)
				wantOffset(t, by, "g", o.TopicPartition, 6)
			})
		})
	}
}
