package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// kafkaMember is a member of Kafka's consumer protocol.
type kafkaMember struct {
	b     *broker
	id    string
	epoch int32
	has   []group.TopicPartition

	assignor *string
	topics   []string // nil: orders
}

func (m *kafkaMember) beat(ctx context.Context) error {
	req := group.ConsumerBeat{
		Group: "g", Member: m.id, Epoch: m.epoch, ClientID: m.id, Rebalance: time.Minute, Assignor: m.assignor,
		Topics: []string{"orders"}, Owned: append([]group.TopicPartition{}, m.has...),
	}
	if m.topics != nil {
		req.Topics = m.topics
	}
	got, err := m.b.ConsumerHeartbeat(ctx, req)
	if err == nil {
		m.epoch, m.has = got.Epoch, got.Assigned
	}
	return err
}

// live sends heartbeats for a time.
func (m *kafkaMember) live(t *testing.T, d time.Duration) {
	t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(5 * time.Second) {
		check(t, m.beat(t.Context()))
	}
}

func TestAConsumerWhoseSessionEndsIsEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		check(t, one.beat(t.Context()))
		check(t, two.beat(t.Context()))
		one.live(t, 20*time.Second)
		check(t, two.beat(t.Context()))
		one.live(t, 40*time.Second)
		if len(one.has) != 2 {
			t.Errorf("one has %v while two has its session", one.has)
		}
		one.live(t, 15*time.Second)
		if len(one.has) != 4 {
			t.Errorf("one has %v", one.has)
		}
		wantErr(t, two.beat(t.Context()), group.ErrUnknownMember)
	})
}

// While a member's eviction is on its way to the store, the member is told so: it must not go on
// with what others have in a moment.
func TestAMemberThatIsBeingEvictedIsToldSo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &hookedStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 4)
		m := &kafkaMember{b: b, id: "one"}
		check(t, m.beat(t.Context()))
		met := make(chan struct{})
		again, joined := &kafkaMember{b: b, id: m.id}, make(chan error, 1)
		store.set(func(s *hookedStore) {
			s.before = func() {
				defer close(met)
				go func() { joined <- again.beat(t.Context()) }()
				synctest.Wait()
				select {
				case err := <-joined:
					t.Errorf("it joins before its eviction is written, and has %v: %v", again.has, err)
					joined <- err
				default:
				}
				wantErr(t, m.beat(t.Context()), group.ErrUnknownMember)
				_, err := b.Commit(t.Context(), group.Commit{Group: "g", Member: m.id, Generation: m.epoch, Offsets: []group.Committed{at(orders[0], 1)}})
				wantErr(t, err, group.ErrUnknownMember)
			}
			s.after = func() error { return nil }
		})
		<-met
		check(t, <-joined)
		if check(t, again.beat(t.Context())); len(again.has) != 4 || again.epoch <= m.epoch+1 {
			t.Errorf("it has %v in epoch %d, and had all in epoch %d before", again.has, again.epoch, m.epoch)
		}
	})
}

// A static member that leaves for a while gives nothing up any more: others get at once what it was
// to give up, and it keeps the rest until its session ends.
func TestAStaticMemberThatLeavesForAWhileKeepsOnlyWhatItIsToKeep(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		name := "instance"
		beat := func(member string, epoch int32, has []group.TopicPartition) group.ConsumerBeaten {
			t.Helper()
			got, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: member, Epoch: epoch, Instance: &name, ClientID: member,
				Rebalance: 20 * time.Second, Topics: []string{"orders"}, Owned: append([]group.TopicPartition{}, has...)})
			check(t, err)
			return got
		}
		joined, two := beat("before", 0, nil), &kafkaMember{b: b, id: "two"}
		check(t, two.beat(t.Context()))
		asked := beat("before", joined.Epoch, joined.Assigned)
		if len(joined.Assigned) != 4 || len(asked.Assigned) != 2 || len(two.has) != 0 {
			t.Fatalf("it had %v and is to keep %v; the other has %v", joined.Assigned, asked.Assigned, two.has)
		}
		beat("before", -2, joined.Assigned)
		check(t, two.beat(t.Context()))
		if len(two.has) != 2 {
			t.Errorf("the other has %v", two.has)
		}
		two.live(t, 30*time.Second) // longer than the time that it had to give them up
		if back := beat("after", 0, nil); !slices.Equal(back.Assigned, asked.Assigned) {
			t.Errorf("it comes back and has %v, and was to keep %v", back.Assigned, asked.Assigned)
		}
	})
}

// A process that dies takes its members with it only when nobody asks for them for a session.
func TestMembersOfADeadHostAreEvictedOrAdopted(t *testing.T) {
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprint("asked: ", asked), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := memory.New()
				b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
				b.topic(t, "orders", 4)
				one := &kafkaMember{b: b, id: "one"}
				check(t, one.beat(t.Context()))
				time.Sleep(2 * time.Second)
				p := joinPeer(t, other, group.PeerConfig{})
				one.live(t, 20*time.Second)
				if len(one.has) != 2 || len(p.Assignment().Own) != 2 {
					t.Fatalf("they have %v and %v", one.has, p.Assignment().Own)
				}
				b.stop()
				if asked {
					one.b = other
					one.live(t, 3*time.Minute)
				} else {
					time.Sleep(3 * time.Minute)
				}
				if got, want := len(p.Assignment().Own), map[bool]int{true: 2, false: 4}[asked]; got != want {
					t.Errorf("the peer has %d partitions, want %d", got, want)
				}
			})
		})
	}
}

// Members of a dead broker of whom nobody hears any more do not stay: others may have their names.
func TestMembersOfADeadHostThatNobodyHearsOfLeaveTheirNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		join := func(b *broker, id string) error {
			name := "instance"
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: id, Instance: &name, ClientID: id,
				Rebalance: time.Minute, Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
			return err
		}
		check(t, join(b, "before"))
		wantErr(t, join(other, "after"), group.ErrUnreleasedInstance)
		b.stop()
		late := time.Now().Add(3 * time.Minute)
		for err := join(other, "after"); err != nil; err = join(other, "after") {
			wantErr(t, err, group.ErrUnreleasedInstance)
			if time.Now().After(late) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
	})
}

// A member that still has partitions to give up learns of new ones with the next epoch, also when
// the process that gave them to it is gone: with the epoch that it has they were another member's.
func TestAnAdoptedMemberHasNothingThatItsEpochDidNotGive(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, blocks := memory.New(), "range"
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 6)
		var all []*kafkaMember
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, &kafkaMember{b: b, id: id, assignor: &blocks})
		}
		for range 6 {
			for _, m := range all {
				check(t, m.beat(t.Context()))
			}
		}
		m := all[1]
		has := func(ns ...int32) {
			t.Helper()
			var got []int32
			for _, tp := range m.has {
				got = append(got, tp.Partition)
			}
			if !slices.Equal(got, ns) {
				t.Errorf("the member has %v in epoch %d, want %v", got, m.epoch, ns)
			}
		}
		has(2, 3)
		all[0].epoch, all[0].has = -1, nil
		check(t, all[0].beat(t.Context())) // 0 and 1 are b's now, and 3 is to become c's
		b.stop()

		before := m.epoch
		m.b = other
		check(t, m.beat(t.Context()))
		has(2)
		if m.epoch != before {
			t.Errorf("its epoch is %d, it was %d", m.epoch, before)
		}
		_, err := other.Commit(t.Context(), group.Commit{Group: "g", Member: m.id, Generation: before, Offsets: []group.Committed{at(orders[0], 1)}})
		wantErr(t, err, group.ErrStaleEpoch)
		check(t, m.beat(t.Context()))
		has(0, 1, 2)
	})
}

// A member that is to give everything up, and whose broker ends before it could say so, hears it
// from the next broker, also if its heartbeats only say that it lives.
func TestAnAdoptedMemberIsToldThatItHasNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, blocks := memory.New(), "range"
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 1)
		first, last := &kafkaMember{b: b, id: "first", assignor: &blocks}, &kafkaMember{b: b, id: "last", assignor: &blocks}
		check(t, last.beat(t.Context()))
		if len(last.has) != 1 {
			t.Fatalf("alone it has %v", last.has)
		}
		check(t, first.beat(t.Context())) // the partition is to be its own
		b.stop()
		for _, tells := range []bool{true, false} {
			got, err := other.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "last", Epoch: last.epoch, Rebalance: -1})
			check(t, err)
			if got.Tells != tells || len(got.Assigned) > 0 {
				t.Errorf("it is answered %+v; want that it says what the member has: %v", got, tells)
			}
		}
		last.b, last.has = other, nil
		check(t, last.beat(t.Context()))
		first.b = other
		check(t, first.beat(t.Context()))
		if len(first.has) != 1 {
			t.Errorf("the other has %v", first.has)
		}
	})
}

// A host's members cost the store no more than one does, however many they are.
func TestIdleConsumersCostTheStoreWhatOneDoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: memory.New()}
		b := startBroker(t, counted, group.Config{})
		b.topic(t, "orders", 100)
		var all []*kafkaMember
		for n := range 200 {
			all = append(all, &kafkaMember{b: b, id: fmt.Sprint("m", n)})
		}
		beatAll := func() {
			var running sync.WaitGroup
			for _, m := range all {
				running.Go(func() { check(t, m.beat(t.Context())) })
			}
			running.Wait()
		}
		beatAll()
		joining, reading := counted.commits.Load(), counted.gets.Load()+counted.lists.Load()
		for range 10 {
			beatAll()
			time.Sleep(5 * time.Second)
		}
		counted.commits.Store(0)
		counted.lists.Store(0)
		for range 12 {
			beatAll()
			time.Sleep(5 * time.Second)
		}
		const settings = 60/5 + 1 // reads of what groups have been given
		if c, l := counted.commits.Load(), counted.lists.Load(); c > 14 || c+l > 2*60+settings {
			t.Errorf("a minute of 200 consumers took %d commits and %d lists", c, l)
		}
		t.Logf("200 joins took %d commits and %d reads", joining, reading)
		if reading > 10 {
			t.Errorf("200 joins read the group %d times", reading)
		}
		owners := 0
		for _, m := range all {
			owners += len(m.has)
		}
		if owners != 100 {
			t.Errorf("they have %d partitions", owners)
		}
	})
}

func TestAFullGroupTakesNoConsumer(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersMax: 2}))
		b.topic(t, "orders", 4)
		for _, id := range []string{"one", "two"} {
			check(t, (&kafkaMember{b: b, id: id}).beat(t.Context()))
		}
		wantErr(t, (&kafkaMember{b: b, id: "three"}).beat(t.Context()), group.ErrFull)
		check(t, (&kafkaMember{b: b, id: "two"}).beat(t.Context()))
	})
}

// Whoever left through another broker a moment ago is no reason to refuse a join.
func TestAJoinIsNotRefusedBecauseOfAMemberThatHasLeft(t *testing.T) {
	name := "instance"
	for why, instance := range map[string]*string{"its instance id": &name, "the limit of members": nil} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store, cfg := memory.New(), group.Config{}
				if instance == nil {
					cfg = cfg.With(group.Limits{MembersMax: 2})
				}
				b, other := startBroker(t, store, cfg), startBroker(t, store, cfg)
				b.topic(t, "orders", 4)
				send := func(b *broker, member string, epoch int32) error {
					_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: member, Epoch: epoch, Instance: instance, ClientID: member,
						Rebalance: time.Minute, Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
					return err
				}
				check(t, (&kafkaMember{b: other, id: "one"}).beat(t.Context()))
				check(t, send(b, "before", 0))
				time.Sleep(2 * time.Second) // the other broker has heard of it
				want := group.ErrFull
				if instance != nil {
					want = group.ErrUnreleasedInstance
				}
				wantErr(t, send(other, "after", 0), want)
				check(t, send(b, "before", -1))
				check(t, send(other, "after", 0))
			})
		})
	}
}

// To a weir that knows no hosts the group has members with a coordinator that lives: it leaves it
// alone.
func TestAnOlderWeirTakesConsumersForMembersWithACoordinator(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		one.live(t, 2*time.Minute)
		state, err := b.log.Get(t.Context(), group.StateKey("g"))
		check(t, err)
		owner, err := b.log.Get(t.Context(), "group/owner/g")
		check(t, err)
		if !strings.Contains(string(state.Value), `"protocol_type":"weir+kafka"`) || owner.Version == 0 || owner.Age > 6*time.Second {
			t.Errorf("state %s, owner's key of %v", state.Value, owner.Age)
		}
		_, err = b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", Epoch: -1, Rebalance: -1})
		check(t, err)
		var left []string
		check(t, b.log.ListAll(t.Context(), "group/", func(kv eventlog.KeyValue) error {
			left = append(left, kv.Key)
			return nil
		}))
		if !slices.Equal(left, []string{"group/state/g"}) {
			t.Errorf("after the last one has left there are %q", left)
		}
	})
}

// A partition that was given to a member, and taken away again before the member's next heartbeat,
// waits for nobody: the member cannot give up what it does not know of.
func TestAPartitionThatItsMemberNeverKnewOfIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		check(t, one.beat(t.Context()))
		check(t, two.beat(t.Context()))
		one.live(t, 11*time.Second)
		two.live(t, 11*time.Second)
		if len(one.has) != 2 || len(two.has) != 2 {
			t.Fatalf("they have %v and %v", one.has, two.has)
		}
		_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "two", Epoch: -1})
		check(t, err) // one has all four now, and is not told
		three := &kafkaMember{b: b, id: "three"}
		check(t, three.beat(t.Context()))
		time.Sleep(2 * time.Second)
		check(t, three.beat(t.Context()))
		if len(three.has) != 2 {
			t.Errorf("three has %v: one, which knows of two partitions, has kept the others", three.has)
		}
		for range 10 { // heartbeats that change nothing
			time.Sleep(5 * time.Second)
			got, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", Epoch: one.epoch, Rebalance: -1})
			check(t, err)
			one.epoch = got.Epoch
			check(t, three.beat(t.Context()))
		}
	})
}

// What another process gives to a member, and takes back before the member's host looks, the member
// has never had.
func TestAPartitionGivenAndTakenBetweenTwoLooksIsGivenUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		time.Sleep(2 * time.Second)
		p := joinPeer(t, other, group.PeerConfig{})
		one.live(t, 20*time.Second)
		if len(one.has) != 2 || len(p.Assignment().Own) != 2 {
			t.Fatalf("they have %v and %v", one.has, p.Assignment().Own)
		}
		p.stop()
		p = joinPeer(t, other, group.PeerConfig{})
		for range 4 { // heartbeats that change nothing
			time.Sleep(5 * time.Second)
			got, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", Epoch: one.epoch, Rebalance: -1})
			check(t, err)
			one.epoch = got.Epoch
		}
		if len(p.Assignment().Own) != 2 {
			t.Errorf("the peer has %v: one has kept what it was never told of", p.Assignment().Own)
		}
	})
}

// After the store was rewound a member has its partitions since a generation that is there, not
// since one that was lost.
func TestAHostForgetsSinceWhenItsMembersHadPartitionsThatTheStoreLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 4)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		one.live(t, 10*time.Second)
		restore, changed := store.Backup(), b.log.IncarnationChanged()
		for range 6 {
			check(t, two.beat(t.Context()))
			check(t, one.beat(t.Context()))
			time.Sleep(time.Second)
		}
		two.epoch, two.has = -1, nil
		check(t, two.beat(t.Context()))
		one.live(t, 10*time.Second)
		if len(one.has) != 4 {
			t.Fatalf("it has %v", one.has)
		}
		restore(false)
		<-changed
		for range 4 {
			_ = one.beat(t.Context()) // it may be told to join again
			time.Sleep(2 * time.Second)
		}
		check(t, one.beat(t.Context()))
		for n, o := range orders {
			_, err := b.Commit(t.Context(), group.Commit{Group: "g", Member: "one", Generation: one.epoch, Offsets: []group.Committed{at(o, 1)}})
			if err != nil {
				t.Errorf("partition %d in epoch %d: %v", n, one.epoch, err)
			}
		}
	})
}

// Who has gone before the write that its join would have been part of does not come back as a
// member that nobody is.
func TestAJoinThatWasAbandonedIsNotMade(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hooked := &hookedStore{Store: memory.New()}
		b := startBroker(t, hooked, group.Config{})
		b.topic(t, "orders", 4)
		check(t, (&kafkaMember{b: b, id: "one"}).beat(t.Context()))
		hooked.set(func(s *hookedStore) {
			s.before = func() {
				ctx, gone := context.WithCancel(t.Context())
				ended := make(chan error)
				go func() { ended <- (&kafkaMember{b: b, id: "ghost"}).beat(ctx) }()
				synctest.Wait()
				gone()
				wantErr(t, <-ended, group.ErrUnavailable)
			}
			s.after = func() error { return nil }
		})
		check(t, (&kafkaMember{b: b, id: "two"}).beat(t.Context()))
		check(t, (&kafkaMember{b: b, id: "three"}).beat(t.Context()))
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		if len(d.Members) != 3 {
			t.Errorf("the members are %+v", d.Members)
		}
	})
}

// A member that gives up what it is asked to each time has its rebalance time-out each time.
func TestAMemberThatGivesUpWhatItIsAskedToStays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 1000)
		old := &kafkaMember{b: b, id: "old"}
		check(t, old.beat(t.Context()))
		var others []*kafkaMember
		for n := range 25 { // longer than its time-out
			m := &kafkaMember{b: b, id: fmt.Sprint("m", n)}
			others = append(others, m)
			for _, o := range others {
				check(t, o.beat(t.Context()))
			}
			check(t, old.beat(t.Context()))
			time.Sleep(4 * time.Second)
		}
	})
}

// A host that others may have taken for dead says nothing of what its members have before it has
// read the group.
func TestAHostThatWasCutOffTellsNobodyWhatHeHad(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		time.Sleep(10 * time.Second)
		store.fail(eventlog.ErrUnavailable, nil)
		for range 12 {
			time.Sleep(5 * time.Second)
			_ = one.beat(t.Context()) // its session goes on as long as it is answered
		}
		wantErr(t, one.beat(t.Context()), group.ErrUnavailable)
		again := &kafkaMember{b: b, id: "one"}
		wantErr(t, again.beat(t.Context()), group.ErrUnavailable)
		store.fail(nil, nil)
		time.Sleep(10 * time.Second)
		check(t, again.beat(t.Context()))
	})
}

// A host whose members others have taken meanwhile has no heartbeat in the store: who joins there
// next brings it back.
func TestWhoJoinsAHostThatWasCutOffIsNotTakenForAMemberOfADeadOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		cut := &faulty{Store: store}
		b, other := startBroker(t, cut, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		check(t, (&kafkaMember{b: b, id: "one"}).beat(t.Context()))
		p := joinPeer(t, other, group.PeerConfig{})
		cut.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(2 * time.Minute)
		if len(p.Assignment().Own) != 4 {
			t.Fatalf("the peer has %v: the member of the host that is cut off was not evicted", p.Assignment().Own)
		}
		cut.fail(nil, nil)
		next := &kafkaMember{b: b, id: "next"}
		check(t, next.beat(t.Context()))
		next.live(t, 30*time.Second)
	})
}

// One change that is too large is refused alone, not with all that go into the same write.
func TestAChangeThatIsTooLargeIsRefusedAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &hookedStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		large := func(member int) error { // 250 kB of the state
			var topics []string
			for n := range 1000 {
				topics = append(topics, fmt.Sprintf("%0249d", member*1000+n))
			}
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: fmt.Sprint("large", member), ClientID: "large", Rebalance: time.Minute,
				Topics: topics, Owned: []group.TopicPartition{}})
			return err
		}
		for n := range 30 {
			check(t, large(n))
		}
		one := &kafkaMember{b: b, id: "one"}
		var wg sync.WaitGroup
		refused, taken := 0, 0
		var mu sync.Mutex
		store.set(func(s *hookedStore) {
			s.before = func() { // these wait for the turn, and go into one write
				wg.Go(func() { check(t, one.beat(t.Context())) })
				for n := range 6 {
					wg.Go(func() {
						err := large(100 + n)
						mu.Lock()
						defer mu.Unlock()
						switch {
						case err == nil:
							taken++
						case errors.Is(err, group.ErrTooLarge):
							refused++
						default:
							t.Error(err)
						}
					})
				}
				synctest.Wait()
			}
		})
		check(t, (&kafkaMember{b: b, id: "first"}).beat(t.Context()))
		wg.Wait()
		if refused == 0 || taken == 0 {
			t.Errorf("%d large ones were taken and %d refused; want some of each", taken, refused)
		}
	})
}

// A group whose topics have grown above the limit goes on: whoever wants to may leave.
func TestAMemberMayLeaveAGroupOfTooManyPartitions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{PartitionsMax: 10}))
		topics := []string{"t0", "t1"}
		b.topic(t, topics[0], 10)
		beat := func(member string, epoch int32) (int32, error) {
			got, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: member, Epoch: epoch, ClientID: member, Rebalance: time.Minute,
				Topics: topics, Owned: []group.TopicPartition{}})
			return got.Epoch, err
		}
		_, err := beat("one", 0)
		check(t, err)
		_, err = beat("two", 0)
		check(t, err)
		b.topic(t, topics[1], 1)
		time.Sleep(2 * time.Second)
		_, err = b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "two", Epoch: -1})
		check(t, err)
		_, err = b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "h", Member: "one", ClientID: "one", Rebalance: time.Minute, Topics: topics, Owned: []group.TopicPartition{}})
		wantErr(t, err, group.ErrTooLarge)
	})
}

// The deletion of a host's heartbeat, of unknown outcome, comes when the host has members again: it
// leaves their heartbeat alone.
func TestALateEndOfAHostsHeartbeatEndsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &forgetfulStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		joinPeer(t, b, group.PeerConfig{}) // it looks at the hosts' heartbeats
		one := &kafkaMember{b: b, id: "one"}
		one.live(t, 10*time.Second)
		store.armed.Store(true)
		_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", Epoch: -1})
		check(t, err)
		two := &kafkaMember{b: b, id: "two"}
		check(t, two.beat(t.Context()))
		late := store.late.Load()
		if late == nil {
			t.Fatal("nobody has deleted the host's heartbeat")
		}
		_, err = store.Store.Commit(t.Context(), *late)
		check(t, err)
		two.live(t, 15*time.Second) // if the peer evicts it, it is told so
	})
}

// forgetfulStore answers once to the deletion of a host's heartbeat that it is unsure, and keeps it
// for later.
type forgetfulStore struct {
	eventlog.Store
	armed atomic.Bool
	late  atomic.Pointer[[]eventlog.Entry]
}

func (s *forgetfulStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	deletes := func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return strings.HasPrefix(p.Key, "group/member/g/host-") && p.Value == nil })
	}
	if slices.ContainsFunc(flush, deletes) && s.armed.CompareAndSwap(true, false) {
		s.late.Store(&flush)
		return nil, eventlog.ErrUnsure
	}
	return s.Store.Commit(ctx, flush)
}

// Two members of the classic protocol that have no assignor in common join at the same moment: one
// of them is refused, and others may join after that.
func TestClassicMembersOfAHostHaveAnAssignorInCommon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &hookedStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		check(t, (&kafkaMember{b: b, id: "one"}).beat(t.Context()))
		join := func(id, assignor string) error {
			m := newClassic(b, id)
			m.join.Protocols[0].Name = assignor
			return m.enter(t.Context())
		}
		var wg sync.WaitGroup
		errs := make([]error, 2)
		store.set(func(s *hookedStore) {
			s.before = func() {
				for i, assignor := range []string{"range", "roundrobin"} {
					wg.Go(func() { errs[i] = join(assignor, assignor) })
				}
				synctest.Wait()
			}
		})
		check(t, (&kafkaMember{b: b, id: "two"}).beat(t.Context()))
		wg.Wait()
		taken := slices.Index(errs, nil)
		if taken < 0 || errs[1-taken] == nil {
			t.Fatalf("one is to be taken, and one refused: %v", errs)
		}
		wantErr(t, errs[1-taken], group.ErrInconsistentProtocol)
		check(t, join("next", []string{"range", "roundrobin"}[taken]))
	})
}
