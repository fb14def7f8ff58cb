package group_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/use/group"
)

// stored is what the store holds of all groups, as versions of keys.
func stored(t *testing.T, b *broker, prefix string) map[string]eventlog.Version {
	t.Helper()
	out := make(map[string]eventlog.Version)
	check(t, b.log.ListAll(t.Context(), prefix, func(kv eventlog.KeyValue) error {
		out[kv.Key] = kv.Version
		return nil
	}))
	return out
}

// lookAt does to group g all that only looks, and all that must be refused while it has members.
func lookAt(t *testing.T, b *broker, o group.Committed) {
	t.Helper()
	ctx := t.Context()
	d, err := b.Describe(ctx, "g")
	check(t, err)
	if d.State != group.Stable || len(d.Members) != 1 {
		t.Fatalf("group g is %s with %d members, want it stable with one", d.State, len(d.Members))
	}
	listed, err := b.List(ctx, nil)
	check(t, err)
	if len(listed) != 1 || listed[0].State != group.Stable {
		t.Fatalf("listed %+v, want g, stable", listed)
	}
	stats, _, err := b.Stats(ctx)
	check(t, err)
	if len(stats) != 1 || stats[0].Members != 1 {
		t.Fatalf("stats %+v, want one member", stats)
	}
	_, err = b.Fetch(ctx, "g", nil)
	check(t, err)
	_, err = b.Commit(ctx, simple("g", at(o, 9)))
	wantErr(t, err, group.ErrUnknownMember)
	_, err = b.Commit(ctx, group.Commit{Group: "g", Member: "stranger", Generation: 1, Offsets: []group.Committed{at(o, 9)}})
	wantErr(t, err, group.ErrUnknownMember)
	wantErr(t, b.Heartbeat(ctx, group.Beat{Group: "g", Member: "stranger", Generation: 1}), group.ErrUnknownMember)
	_, err = b.Sync(ctx, group.Sync{Group: "g", Member: "stranger", Generation: 1})
	wantErr(t, err, group.ErrUnknownMember)
	errs, err := b.Leave(ctx, "g", []group.Leaver{{Member: "stranger"}, {Instance: "stranger"}})
	check(t, err)
	wantErr(t, errs[0], group.ErrUnknownMember)
	_, err = b.Join(ctx, group.Join{Group: "g", Session: session, ProtocolType: "connect", Protocols: []group.Protocol{{Name: "x"}}})
	wantErr(t, err, group.ErrInconsistentProtocol)
	wantErr(t, b.Delete(ctx, "g"), group.ErrNotEmpty)
	errs, err = b.DeleteOffsets(ctx, "g", []group.Committed{o})
	check(t, err)
	wantErr(t, errs[0], group.ErrSubscribed)
}

// Two processes have one store. One has a member, which commits nothing for days. The other only
// looks, and cleans up.
func TestLookingAtAGroupChangesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		cfg := group.Config{}.With(group.Limits{OffsetRetention: time.Hour})
		a, b := startBroker(t, store, cfg), startBroker(t, store, cfg)
		o := a.topic(t, "orders", 1)[0]
		p := reader(t, a)
		check(t, p.commit(t.Context(), at(o, 3)))
		before := stored(t, a, "group/state/")
		for range 8 { // hours
			lookAt(t, b, o)
			p.beatUntil(t, time.Now().Add(session+time.Second))
			lookAt(t, b, o)
			p.beatUntil(t, time.Now().Add(time.Hour))
		}
		if after := stored(t, a, "group/state/"); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("the group was at %v, and is at %v", before, after)
		}
		wantOffset(t, a, "g", o.TopicPartition, 3)
		check(t, p.commit(t.Context(), at(o, 4)))
	})
}

func TestLookingChangesNothingOnRealStores(t *testing.T) {
	for name, open := range realStores {
		t.Run(name, func(t *testing.T) {
			store := open(t)
			a, b := startBroker(t, store, group.Config{InitialDelay: -1}), startFollowing(t, store, group.Config{InitialDelay: -1}, 10*time.Millisecond)
			o := a.topic(t, "orders", 1)[0]
			p := newPlayer(a, "g", "p")
			check(t, p.enter(t.Context()))
			check(t, p.sync(t.Context()))
			check(t, p.commit(t.Context(), at(o, 3)))
			before := stored(t, a, "group/")
			lookAt(t, b, o)
			if after := stored(t, a, "group/"); fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("the store held %v, and holds %v", before, after)
			}
			check(t, p.commit(t.Context(), at(o, 4)))
		})
	}
}

var realStores = map[string]func(t *testing.T) eventlog.Store{
	"sqlite": func(t *testing.T) eventlog.Store {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "weir.db"), sqlite.Options{})
		return opened(t, s, err)
	},
	"postgres": func(t *testing.T) eventlog.Store {
		s, err := postgres.Open(t.Context(), pgtest.URL(t), postgres.Options{})
		return opened(t, s, err)
	},
}

// The store was away for longer than the session, and nobody could say that it lives. Whoever asks
// first when it is back must not take them for dead: neither peers nor the members of a
// coordinator.
func TestNobodyIsTakenForDeadBecauseTheStoreWasAway(t *testing.T) {
	ask := map[string]func(*testing.T, *broker) error{
		"describe": func(t *testing.T, b *broker) error { _, err := b.Describe(t.Context(), "g"); return err },
		"list": func(t *testing.T, b *broker) error {
			empty, err := b.List(t.Context(), []string{"empty"})
			if len(empty) > 0 {
				t.Errorf("listed as empty: %v", empty)
			}
			return err
		},
		"delete": func(t *testing.T, b *broker) error { return wanted(b.Delete(t.Context(), "g"), group.ErrNotEmpty) },
		"reset": func(t *testing.T, b *broker) error {
			_, err := b.Commit(t.Context(), simple("g", group.Committed{TopicPartition: group.TopicPartition{Topic: eventlog.TopicID{1}}, Name: "gone"}))
			return wanted(err, group.ErrUnknownMember)
		},
		"join by another kind": func(t *testing.T, b *broker) error {
			k := newPlayer(b, "g", "k")
			k.join.Protocols[0].Name = "mine"
			return wanted(k.enter(t.Context()), group.ErrInconsistentProtocol)
		},
	}
	for name, ask := range ask {
		t.Run("peers, "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := &faulty{Store: memory.New()}
				b := startBroker(t, store, group.Config{})
				o := b.topic(t, "orders", 1)[0]
				p := joinPeer(t, b, group.PeerConfig{})
				check(t, p.Commit(t.Context(), []group.Committed{at(o, 3)}))
				time.Sleep(time.Minute)
				store.fail(eventlog.ErrUnavailable, nil)
				time.Sleep(time.Minute + 1234*time.Millisecond)
				store.fail(nil, nil)
				check(t, ask(t, b))
				time.Sleep(session)
				wantHas(t, p, "orders:0")
				check(t, p.Commit(t.Context(), []group.Committed{at(o, 4)}))
			})
		})
		if name == "join by another kind" {
			continue
		}
		t.Run("members elsewhere, "+name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := &faulty{Store: memory.New()}
				a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
				o := a.topic(t, "orders", 1)[0]
				p := reader(t, a)
				check(t, p.commit(t.Context(), at(o, 3)))
				p.beatUntil(t, time.Now().Add(time.Minute))
				store.fail(eventlog.ErrUnavailable, nil)
				_, err := b.List(t.Context(), nil)
				wantErr(t, err, group.ErrLoading)
				p.beatThrough(t, time.Now().Add(time.Minute))
				store.fail(nil, nil)
				check(t, ask(t, b))
				p.beatThrough(t, time.Now().Add(session/2))
				p.beatUntil(t, time.Now().Add(session))
				check(t, p.commit(t.Context(), at(o, 4)))
			})
		})
	}
}

// While a broker is suspended, or its store is away, it hears no heartbeat. Its members get another
// session then, and those who are gone are found out after it.
func TestNobodyIsTakenForDeadBecauseTheirBrokerWasSuspended(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startFollowing(t, store, group.Config{InitialDelay: -1}, 250*time.Millisecond)
		b.topic(t, "orders", 1)
		p := reader(t, b)
		p.beatUntil(t, time.Now().Add(time.Minute))
		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(session + 2*time.Second)
		store.fail(nil, nil)
		time.Sleep(session / 2)
		check(t, p.beat(t.Context()))
		time.Sleep(session + time.Second)
		wantErr(t, p.beat(t.Context()), group.ErrUnknownMember)
	})
}

// heldStore answers reads, and lets commits wait while it is held, as SQLite does while another
// process that is stopped has the write lock.
type heldStore struct {
	eventlog.Store
	free atomic.Pointer[chan struct{}] // closed at the end of the wait; nil: nobody waits
}

func (s *heldStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	if free := s.free.Load(); free != nil {
		<-*free
	}
	return s.Store.Commit(ctx, flush)
}

func TestNobodyIsTakenForDeadBecauseCommitsWaited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &heldStore{Store: memory.New()}
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		o := a.topic(t, "orders", 1)[0]
		p := reader(t, a)
		check(t, p.commit(t.Context(), at(o, 3)))
		p.beatUntil(t, time.Now().Add(time.Minute))
		lives := func(when string) {
			t.Helper()
			if d, err := b.Describe(t.Context(), "g"); err != nil || d.State != group.Stable || len(d.Members) != 1 {
				t.Errorf("%s: %+v, %v", when, d, err)
			}
		}
		free := make(chan struct{})
		store.free.Store(&free)
		var waiting sync.WaitGroup
		waiting.Go(func() {
			_, _ = b.Commit(t.Context(), simple("another", at(o, 1))) // whatever becomes of it: b has something to write
		})
		time.Sleep(2*session + time.Second)
		lives("while commits wait")
		store.free.Store(nil)
		close(free)
		waiting.Wait()
		lives("when they do no longer")
		wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotEmpty)
		p.beatUntil(t, time.Now().Add(session))
		check(t, p.commit(t.Context(), at(o, 4)))
	})
}

// wanted is nil for the error that is wanted.
func wanted(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return fmt.Errorf("got %v, want %w", err, want)
}

// A process that was overtaken learns of it within a third of the session, and tells its members,
// also those that wait.
func TestAnOwnerFindsOutThatItWasOvertaken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 1)
		p := newPlayer(a, "g", "p")
		p.join.Session = 30 * time.Second
		settle(t, p)
		time.Sleep(time.Second)
		moved := *p
		moved.b = b
		check(t, moved.beat(t.Context())) // its connection goes to another process now
		errs, err := b.Leave(t.Context(), "g", []group.Leaver{{Member: p.join.Member}})
		check(t, err)
		check(t, errs[0])
		time.Sleep(10 * time.Second)
		wantErr(t, p.beat(t.Context()), group.ErrUnknownMember)

		// One waits in a join for a member that does not come, and another process takes the group
		// over.
		q, late := newPlayer(a, "g", "q"), newPlayer(a, "g", "late")
		settle(t, q)
		told := make(chan error, 1)
		go func() { told <- late.enter(t.Context()) }()
		time.Sleep(time.Second)
		moved = *q
		moved.b = b
		check(t, moved.beat(t.Context()))
		start := time.Now()
		wantErr(t, <-told, group.ErrMoved)
		if took := time.Since(start); took > session/3 {
			t.Errorf("who waits was told after %v, want a third of the session", took)
		}
	})
}

// A process died, and its members with it. The group is free when it has been silent for its
// session by the store's clock, and not before; whatever was asked meanwhile.
func TestAGroupIsFreeWhenItWasSilentForItsSession(t *testing.T) {
	free := map[string]func(*testing.T, *broker, group.Committed) error{
		"delete": func(t *testing.T, b *broker, _ group.Committed) error { return b.Delete(t.Context(), "g") },
		"reset": func(t *testing.T, b *broker, o group.Committed) error {
			_, err := b.Commit(t.Context(), simple("g", at(o, 7)))
			return err
		},
		"peers": func(t *testing.T, b *broker, _ group.Committed) error {
			p, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
			if err != nil {
				return err
			}
			free := len(p.Assignment().Own) == 1
			if err := p.Leave(t.Context()); err != nil || free {
				return err
			}
			return errors.New("the partition is another member's")
		},
	}
	for name, free := range free {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := memory.New()
				a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
				o := a.topic(t, "orders", 1)[0]
				check(t, b.log.RefreshTopics(t.Context()))
				p := reader(t, a)
				check(t, p.commit(t.Context(), at(o, 3)))
				p.beatUntil(t, time.Now().Add(time.Minute))
				a.stop()
				for range 6 {
					if free(t, b, o) == nil {
						t.Fatal("taken from members that have a session to come back")
					}
					lookAt(t, b, o)
					time.Sleep(time.Second)
				}
				time.Sleep(session - 5*time.Second)
				check(t, free(t, b, o))
				p.b = b
				wantErr(t, p.beat(t.Context()), group.ErrUnknownMember)
				d, err := b.Describe(t.Context(), "g")
				if err == nil && d.State != group.Empty {
					t.Errorf("described %+v", d)
				}
				for key := range stored(t, b, "group/owner/") {
					t.Errorf("%s is left", key)
				}
			})
		})
	}
}

// Members came and went since the offsets were last reset: that is no reason to refuse it, in one
// process or in several.
func TestOffsetsAreResetWhateverMembersDidMeanwhile(t *testing.T) {
	inBubble(t, func(t *testing.T) { resets(t, memory.New(), time.Hour) })
	for name, open := range realStores {
		t.Run(name, func(t *testing.T) { resets(t, open(t), 10*time.Millisecond) })
	}
}

func resets(t *testing.T, store eventlog.Store, poll time.Duration) {
	cfg := group.Config{InitialDelay: -1}
	brokers := []*broker{startFollowing(t, store, cfg, poll), startFollowing(t, store, cfg, poll)}
	o := brokers[0].topic(t, "orders", 1)[0]
	check(t, brokers[1].log.RefreshTopics(t.Context()))
	for i := range eventlog.Offset(6) {
		b := brokers[i/3%2]
		commit(t, b, "g", at(o, i))
		wantOffset(t, b, "g", o.TopicPartition, i)
		p, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err)
		check(t, p.Leave(t.Context()))
		commit(t, b, "g", at(o, i+10))
		k := newPlayer(brokers[1-i/3%2], "g", "k")
		check(t, k.enter(t.Context()))
		check(t, k.sync(t.Context()))
		_, err = k.b.Leave(t.Context(), "g", []group.Leaver{{Member: k.join.Member}})
		check(t, err)
	}
	_, err := brokers[0].DeleteOffsets(t.Context(), "g", []group.Committed{o})
	check(t, err)
	commit(t, brokers[1], "g", at(o, 1))
	check(t, brokers[0].Delete(t.Context(), "g"))
	wantNothingKept(t, store)
}

// A group whose members died loses its offsets when the retention is over. Neither looking nor a
// restart moves that.
func TestLookingNeitherShortensNorLengthensAGroupsLife(t *testing.T) {
	for _, name := range []string{"nobody looks", "somebody looks"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := memory.New()
				cfg := group.Config{}.With(group.Limits{OffsetRetention: 12 * time.Hour})
				a, b := startBroker(t, store, cfg), startBroker(t, store, cfg)
				o := a.topic(t, "orders", 1)[0]
				p := reader(t, a)
				check(t, p.commit(t.Context(), at(o, 3)))
				p.beatUntil(t, time.Now().Add(13*time.Hour))
				died := time.Now()
				a.stop()
				look := func(until time.Time) {
					for time.Now().Before(until) {
						time.Sleep(min(10*time.Minute, time.Until(until)))
						if name == "somebody looks" {
							_, err := b.Describe(t.Context(), "g")
							check(t, err)
							_, err = b.List(t.Context(), nil)
							check(t, err)
							_, err = b.Commit(t.Context(), group.Commit{Group: "g", Member: "stranger", Generation: 1, Offsets: []group.Committed{o}})
							if err == nil {
								t.Fatal("a stranger committed")
							}
						}
					}
				}
				look(died.Add(10 * time.Hour))
				b.stop()
				b = startBroker(t, store, cfg)
				look(died.Add(12*time.Hour - time.Minute))
				wantOffset(t, b, "g", o.TopicPartition, 3)
				time.Sleep(12 * time.Minute)
				wantNothingKept(t, store)
			})
		})
	}
}

// A store that lost its end comes by the number of changes again that a coordinator remembers. What
// that one knows is not the group.
func TestAGroupIsNotTakenForTheOneThatTheStoreLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a, b := startFollowing(t, store, group.Config{}, time.Second), startFollowing(t, store, group.Config{}, time.Second)
		o := a.topic(t, "orders", 1)[0]
		time.Sleep(2 * time.Second)
		p, q := newPlayer(a, "g", "p"), newPlayer(a, "g", "q")
		settle(t, p)
		restore, known := store.Backup(), *p // as of the generation that the store will have
		settle(t, p, q)
		restore(false)
		time.Sleep(2 * time.Second)
		known.b = b
		check(t, known.beat(t.Context())) // b coordinates the group now
		if err := p.commit(t.Context(), at(o, 3)); err == nil {
			t.Errorf("a commit in generation %d was taken, and the group is at %d", p.joined.Generation, known.joined.Generation)
		}
		check(t, known.commit(t.Context(), at(o, 1)))
		wantOffset(t, b, "g", o.TopicPartition, 1)
	})
}

// Members of a generation that the store lost are told at their next heartbeat, and not once it is
// time to renew the ownership.
func TestMembersOfAGroupThatTheStoreLostAreToldAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a := startFollowing(t, store, group.Config{}, time.Second)
		a.topic(t, "orders", 1)
		time.Sleep(2 * time.Second)
		restore := store.Backup()
		p := newPlayer(a, "g", "p")
		p.join.Session = 30 * time.Minute
		settle(t, p)
		restore(false)
		time.Sleep(2 * time.Second) // two polls
		if err := p.beat(t.Context()); err == nil {
			t.Error("a member of a group that is not there any more was told that all is well")
		}
	})
}

// A consumer of a group that the store lost is told soon as well, and not at the next time that it
// would look by itself.
func TestPeersOfAGroupThatTheStoreLostLookAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		b.topic(t, "orders", 1)
		time.Sleep(2 * time.Second)
		restore := store.Backup()
		p := joinPeer(t, b, group.PeerConfig{Session: 20 * time.Minute, Heartbeat: 5 * time.Minute, Look: 5 * time.Minute})
		time.Sleep(time.Second)
		restore(false)
		time.Sleep(10 * time.Second)
		if own := p.Assignment().Own; len(own) > 0 {
			t.Errorf("ten seconds after its group was lost a peer has %d partitions", len(own))
		}
	})
}

// A coordinator that has lost its way to the store tells its members so after a session: another
// one may coordinate the group then.
func TestACoordinatorThatIsCutOffTellsItsMembers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		cut := &faulty{Store: store}
		a, b := startBroker(t, cut, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 1)
		p := reader(t, a)
		p.beatUntil(t, time.Now().Add(time.Minute))
		cut.fail(eventlog.ErrUnavailable, nil)
		told := time.Now().Add(session + session/2)
		for p.beat(t.Context()) == nil {
			if time.Now().After(told) {
				t.Fatal("its members hear that all is well")
			}
			time.Sleep(time.Second)
		}
		wantErr(t, p.beat(t.Context()), group.ErrUnavailable)
		time.Sleep(2 * session)
		check(t, newPlayer(b, "g", "other").enter(t.Context()))
		wantErr(t, p.beat(t.Context()), group.ErrUnavailable)
		cut.fail(nil, nil)
		time.Sleep(session)
		wantErr(t, p.beat(t.Context()), group.ErrUnknownMember)
	})
}

// A store that is away for longer than a session, for everybody, ends no membership.
func TestMembersGoOnAfterALongOutage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		a := startBroker(t, store, group.Config{})
		a.topic(t, "orders", 1)
		p := reader(t, a)
		p.beatUntil(t, time.Now().Add(time.Minute))
		store.fail(eventlog.ErrUnavailable, nil)
		for range 30 {
			time.Sleep(time.Second)
			_ = p.beat(t.Context())
		}
		wantErr(t, p.beat(t.Context()), group.ErrUnavailable)
		store.fail(nil, nil)
		time.Sleep(session / 2)
		p.beatUntil(t, time.Now().Add(time.Minute))
	})
}
