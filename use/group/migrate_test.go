package group_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// classicMember is a consumer of the classic protocol, whose leader gives each member an equal
// share of the four partitions of orders.
type classicMember struct {
	*player
	has []int32
}

func newClassic(b *broker, id string) *classicMember {
	return &classicMember{player: newPlayer(b, "g", id)}
}

// cooperates makes the member keep its partitions while it joins.
func (m *classicMember) cooperates() {
	meta := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"orders"}}
	if len(m.has) > 0 {
		meta.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "orders", Partitions: m.has}}
	}
	m.join.Protocols = []group.Protocol{{Name: "cooperative-sticky", Metadata: meta.AppendTo(nil)}}
}

func (m *classicMember) rejoin(ctx context.Context) error {
	if err := m.enter(ctx); err != nil {
		return err
	}
	s := group.Sync{Group: "g", Member: m.join.Member, Instance: m.join.Instance, Generation: m.joined.Generation, ProtocolType: "consumer", Protocol: m.joined.Protocol}
	if m.joined.Leader == m.joined.Member {
		s.Assignments = make(map[string][]byte)
		for i, o := range m.joined.Members {
			var share []int32
			for n := range int32(4) {
				if int(n)%len(m.joined.Members) == i {
					share = append(share, n)
				}
			}
			a := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "orders", Partitions: share}}}
			s.Assignments[o.Member] = a.AppendTo(nil)
		}
	}
	out, err := m.b.Sync(ctx, s)
	if err != nil {
		return err
	}
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(out.Assignment); err != nil {
		return err
	}
	m.has = nil
	for _, t := range a.Topics {
		m.has = append(m.has, t.Partitions...)
	}
	return nil
}

// live sends heartbeats for a time, and joins again when it is asked to.
func (m *classicMember) live(t *testing.T, d time.Duration) {
	t.Helper()
	for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(time.Second) {
		if m.beat(t.Context()) != nil {
			check(t, m.rejoin(t.Context()))
		}
	}
}

// upgraded starts a classic group of two members, and a member of the consumer protocol in it.
func upgraded(t *testing.T, b *broker) (one, two *classicMember, next *kafkaMember) {
	t.Helper()
	one, two = newClassic(b, "one"), newClassic(b, "two")
	together(t, []*player{one.player, two.player}, func(p *player) error {
		m := one
		if p == two.player {
			m = two
		}
		return m.rejoin(t.Context())
	})
	if len(one.has) != 2 || len(two.has) != 2 {
		t.Fatalf("they begin with %v and %v", one.has, two.has)
	}
	next = &kafkaMember{b: b, id: "next"}
	check(t, next.beat(t.Context()))
	return one, two, next
}

// goOn lets the members of an upgraded group speak for a while.
func goOn(t *testing.T, one, two *classicMember, next *kafkaMember) {
	t.Helper()
	for range 3 {
		one.live(t, 3*time.Second)
		two.live(t, 3*time.Second)
		check(t, next.beat(t.Context()))
	}
}

func inAll(sizes ...int) (n int) {
	for _, s := range sizes {
		n += s
	}
	return n
}

func TestAMemberOfTheConsumerProtocolJoinsAClassicGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: time.Second})
		at0 := b.topic(t, "orders", 4)
		one, two, next := upgraded(t, b)
		if len(next.has) != 0 {
			t.Errorf("the new member is told of %v before anybody gave them up", next.has)
		}
		// Who had a partition commits it with the generation that it has.
		check(t, one.commit(t.Context(), at(at0[one.has[0]], 7)))
		_, err := b.Commit(t.Context(), group.Commit{Group: "g", Member: one.join.Member, Generation: one.joined.Generation, Classic: true, Offsets: []group.Committed{at(at0[one.has[0]], 8)}})
		check(t, err) // whichever version its requests have
		for range 4 {
			one.live(t, 3*time.Second)
			two.live(t, 3*time.Second)
			check(t, next.beat(t.Context()))
		}
		if len(next.has) == 0 || inAll(len(one.has), len(two.has), len(next.has)) != 4 {
			t.Errorf("they have %v, %v and %v", one.has, two.has, next.has)
		}
		// And nobody commits a partition that is another's.
		wantErr(t, one.commit(t.Context(), at(at0[next.has[0].Partition], 9)), group.ErrIllegalGeneration)
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		for _, m := range d.Members {
			if m.Classic != (m.ID != "next") {
				t.Errorf("member %q is described as classic: %v", m.ID, m.Classic)
			}
		}
	})
}

// A broker that has not heard of a topic yet, or of its new partitions, gives them to nobody while
// the members of the classic group read them.
func TestAGroupChangesAtABrokerThatHasNotHeardOfItsPartitions(t *testing.T) {
	for name, heard := range map[string]int{"of a topic": 0, "of new partitions": 2} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := memory.New()
				b, other := startBroker(t, store, group.Config{InitialDelay: -1}), startBroker(t, store, group.Config{InitialDelay: -1})
				if heard > 0 {
					b.topic(t, "orders", heard)
					check(t, other.log.RefreshTopics(t.Context()))
					_, err := b.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 4})
					check(t, err)
				} else {
					b.topic(t, "orders", 4)
				}
				old := newClassic(b, "old")
				check(t, old.rejoin(t.Context()))
				next := &kafkaMember{b: other, id: "next"}
				check(t, next.beat(t.Context()))
				check(t, other.log.RefreshTopics(t.Context())) // it hears of them now
				time.Sleep(2 * time.Second)
				check(t, next.beat(t.Context()))
				if len(old.has) != 4 || len(next.has) > 0 {
					t.Errorf("the old member reads %v, and the new one has %v", old.has, next.has)
				}
			})
		})
	}
}

// A member whose assignor is cooperative keeps what it reads while it joins, and gives up only what
// another one gets.
func TestACooperativeMemberKeepsItsPartitionsWhileTheGroupChanges(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: -1})
		b.topic(t, "orders", 4)
		one := newClassic(b, "one")
		one.cooperates()
		check(t, one.rejoin(t.Context()))
		next := &kafkaMember{b: b, id: "next"}
		check(t, next.beat(t.Context()))
		wantErr(t, one.beat(t.Context()), group.ErrRebalancing)
		one.cooperates()
		check(t, one.rejoin(t.Context()))
		if len(one.has) != 2 {
			t.Errorf("it is left with %v", one.has)
		}
		check(t, next.beat(t.Context()))
		if len(next.has) != 0 {
			t.Errorf("the new member has %v, which the other one has not given up", next.has)
		}
		one.cooperates()
		check(t, one.rejoin(t.Context())) // after it gave them up
		check(t, one.beat(t.Context()))
		check(t, next.beat(t.Context()))
		if len(next.has) != 2 {
			t.Errorf("the new member has %v", next.has)
		}
	})
}

// A classic member that is asked to join again, and does not, loses its partitions after its
// rebalance time-out, though it sends heartbeats.
func TestAClassicMemberThatDoesNotJoinAgainIsEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: time.Second})
		b.topic(t, "orders", 4)
		one, two, next := upgraded(t, b)
		var err error
		for range 40 {
			err = one.beat(t.Context())
			two.live(t, time.Second)
			check(t, next.beat(t.Context()))
		}
		wantErr(t, err, group.ErrUnknownMember)
		if inAll(len(two.has), len(next.has)) != 4 {
			t.Errorf("the others have %v and %v", two.has, next.has)
		}
	})
}

// The last member of the consumer protocol leaves: nobody who stays loses its generation, and with
// it the right to commit what it has read.
func TestAGroupOfClassicMembersAloneIsAClassicGroupAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: time.Second})
		at0 := b.topic(t, "orders", 4)
		one, two, next := upgraded(t, b)
		goOn(t, one, two, next)
		_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "next", Epoch: -1})
		check(t, err)
		for range 20 {
			for _, m := range []*classicMember{one, two} {
				err := m.beat(t.Context())
				if err == nil {
					continue
				}
				wantErr(t, err, group.ErrRebalancing)
				if len(m.has) > 0 {
					check(t, m.commit(t.Context(), at(at0[m.has[0]], eventlog.Offset(time.Now().Unix()))))
				}
			}
			together(t, []*player{one.player, two.player}, func(p *player) error {
				m := one
				if p == two.player {
					m = two
				}
				if m.beat(t.Context()) == nil {
					return nil
				}
				return m.rejoin(t.Context())
			})
			time.Sleep(time.Second)
		}
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		if d.Consumer || d.State != group.Stable || inAll(len(one.has), len(two.has)) != 4 {
			t.Errorf("the group is %+v; they have %v and %v", d, one.has, two.has)
		}
		wantErr(t, next.beat(t.Context()), group.ErrUnknownMember) // so it knows that it may join again
		if one.joined.Leader == "" && two.joined.Leader == "" {
			t.Error("nobody leads the group, so nobody learns of new partitions")
		}
	})
}

// A static member that is upgraded keeps its partitions, and its classic self is fenced; and the
// other way round.
func TestAStaticMemberChangesItsProtocol(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: time.Second})
		b.topic(t, "orders", 4)
		one, two := newClassic(b, "one"), newClassic(b, "two")
		one.join.Instance, two.join.Instance = "first", "second"
		together(t, []*player{one.player, two.player}, func(p *player) error {
			if p == one.player {
				return one.rejoin(t.Context())
			}
			return two.rejoin(t.Context())
		})
		had, instance := one.has, "first"
		heartbeat := func(epoch int32, member string) (group.ConsumerBeaten, error) {
			return b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{
				Group: "g", Member: member, Epoch: epoch, Instance: &instance, Rebalance: time.Minute, Topics: []string{"orders"}, Owned: []group.TopicPartition{},
			})
		}
		got, err := heartbeat(0, "next")
		check(t, err)
		var has []int32
		for _, tp := range got.Assigned {
			has = append(has, tp.Partition)
		}
		if !slices.Equal(has, had) {
			t.Errorf("it had %v, and has %v", had, has)
		}
		wantErr(t, one.beat(t.Context()), group.ErrFencedInstance)
		back := newClassic(b, "back")
		back.join.Instance = "first"
		check(t, back.rejoin(t.Context()))
		if !slices.Equal(back.has, had) {
			t.Errorf("back in the classic protocol it has %v", back.has)
		}
		_, err = b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "next", Epoch: got.Epoch, Instance: &instance, Rebalance: -1})
		wantErr(t, err, group.ErrFencedInstance)
	})
}

// When the broker of a changing group ends, the next one goes on with all its members.
func TestAnotherBrokerTakesOverAGroupThatChangesItsProtocol(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{InitialDelay: time.Second}), startBroker(t, store, group.Config{InitialDelay: time.Second})
		b.topic(t, "orders", 4)
		one, two, next := upgraded(t, b)
		goOn(t, one, two, next)
		b.stop()
		one.b, two.b, next.b = other, other, other
		member := one.join.Member
		goOn(t, one, two, next)
		if one.join.Member != member {
			t.Errorf("the member %q became %q", member, one.join.Member)
		}
		if inAll(len(one.has), len(two.has), len(next.has)) != 4 || len(next.has) == 0 {
			t.Errorf("they have %v, %v and %v", one.has, two.has, next.has)
		}
		errs, err := other.Leave(t.Context(), "g", []group.Leaver{{Member: one.join.Member}, {Member: "nobody"}})
		check(t, err)
		check(t, errs[0])
		wantErr(t, errs[1], group.ErrUnknownMember)
		wantErr(t, one.beat(t.Context()), group.ErrUnknownMember)
	})
}

// Clients of the classic protocol that a consumer group has cost the store what one does.
func TestIdleClassicMembersOfAHostCostTheStoreWhatOneDoes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: memory.New()}
		b := startBroker(t, counted, group.Config{})
		b.topic(t, "orders", 4)
		next := &kafkaMember{b: b, id: "next"}
		check(t, next.beat(t.Context()))
		var all []*classicMember
		for n := range 20 {
			all = append(all, newClassic(b, "m"+strconv.Itoa(n)))
			check(t, all[n].rejoin(t.Context()))
		}
		round := func() {
			for _, m := range all {
				if m.beat(t.Context()) != nil {
					check(t, m.rejoin(t.Context()))
				}
			}
			check(t, next.beat(t.Context()))
			time.Sleep(5 * time.Second)
		}
		for range 5 {
			round()
		}
		counted.commits.Store(0)
		counted.lists.Store(0)
		for range 12 {
			round()
		}
		if c, l := counted.commits.Load(), counted.lists.Load(); c > 14 || c+l > 2*60 {
			t.Errorf("a minute of 20 members took %d commits and %d lists", c, l)
		}
	})
}

// The broker that goes on with a group reads it in several steps. Whichever of them fails, nobody
// is told that it is no member: it would give up what it reads.
func TestAFailedReadEndsNoMembership(t *testing.T) {
	for nth := range int64(12) {
		inBubble(t, func(t *testing.T) {
			store := memory.New()
			failing := &failingRead{Store: store}
			b, other := startBroker(t, store, group.Config{InitialDelay: time.Second}), startBroker(t, failing, group.Config{InitialDelay: time.Second})
			at0 := b.topic(t, "orders", 4)
			check(t, other.log.RefreshTopics(t.Context()))
			one, two, next := upgraded(t, b)
			for range 3 {
				one.live(t, 3*time.Second)
				two.live(t, 3*time.Second)
				check(t, next.beat(t.Context()))
			}
			b.stop()
			one.b, two.b = other, other
			failing.left.Store(nth + 1)
			errs := []error{one.beat(t.Context()), two.commit(t.Context(), at(at0[two.has[0]], 5))}
			failing.left.Store(0)
			for _, err := range errs {
				if errors.Is(err, group.ErrUnknownMember) || errors.Is(err, group.ErrIllegalGeneration) {
					t.Errorf("read %d fails: %v", nth, err)
				}
			}
		})
	}
}

// failingRead fails one read of groups: the one after which left is 0.
type failingRead struct {
	eventlog.Store
	left atomic.Int64
}

func (s *failingRead) fails(key string) bool {
	return strings.HasPrefix(key, "group/") && s.left.Load() > 0 && s.left.Add(-1) == 0
}

func (s *failingRead) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if s.fails(keys[0]) {
		return nil, eventlog.ErrUnavailable
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

func (s *failingRead) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	if s.fails(prefix) {
		return nil, eventlog.ErrUnavailable
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// In a group with a member of the consumer protocol, too, a static member that was replaced does
// not take its name back: it is fenced, and not the one that replaced it.
func TestAFencedClassicMemberDoesNotTakeItsNameBack(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		check(t, (&kafkaMember{b: b, id: "next"}).beat(t.Context()))
		before, after := newStatic(b, "g", "name"), newStatic(b, "g", "name")
		check(t, before.enter(t.Context()))
		check(t, after.enter(t.Context()))
		if before.join.Member == after.join.Member {
			t.Fatalf("both are %s", before.join.Member)
		}
		wantErr(t, before.enter(t.Context()), group.ErrFencedInstance)
		if err := after.beat(t.Context()); errors.Is(err, group.ErrFencedInstance) || errors.Is(err, group.ErrUnknownMember) {
			t.Error(err)
		}
	})
}

// Members of a group that nobody leads join again, also if the broker ends before all of them have.
func TestAGroupWithoutALeaderRebalancesAtTheNextBroker(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{InitialDelay: time.Second}), startBroker(t, store, group.Config{InitialDelay: time.Second})
		b.topic(t, "orders", 4)
		one, two, next := upgraded(t, b)
		goOn(t, one, two, next)
		_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "next", Epoch: -1})
		check(t, err)
		for { // until it is a classic group that b has written once
			err := one.beat(t.Context())
			state, getErr := b.log.Get(t.Context(), group.StateKey("g"))
			check(t, getErr)
			if strings.Contains(string(state.Value), `"protocol_type":"consumer"`) && errors.Is(err, group.ErrRebalancing) {
				break
			}
			if err != nil {
				check(t, one.rejoin(t.Context()))
			}
			two.live(t, time.Second)
		}
		b.stop()
		one.b = other
		for range 60 { // until the other broker takes the group over
			if err = one.beat(t.Context()); err == nil || errors.Is(err, group.ErrRebalancing) {
				break
			}
			time.Sleep(time.Second)
		}
		wantErr(t, err, group.ErrRebalancing)
	})
}

// Peers that join a classic group at the same time all find it changed to theirs.
func TestPeersThatUpgradeAGroupAtTheSameTimeAllJoin(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		hooked := &hookedStore{Store: store}
		b, other := startBroker(t, store, group.Config{InitialDelay: time.Second}), startBroker(t, hooked, group.Config{InitialDelay: time.Second})
		b.topic(t, "orders", 4)
		one := newClassic(b, "one")
		check(t, one.rejoin(t.Context()))
		hooked.set(func(s *hookedStore) {
			s.before = func() { joinPeer(t, b, group.PeerConfig{}) }
			s.after = func() error { return nil }
		})
		joinPeer(t, other, group.PeerConfig{})
	})
}

// If the members of the consumer protocol ask for range, those of other kinds, which cannot ask,
// get their block of each topic, too, and the same one of topics of the same size.
func TestRangeGivesMembersOfEveryKindTheSameBlockOfEachTopic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: -1})
		both, blocks := []string{"orders", "payments"}, "range"
		for _, topic := range both {
			b.topic(t, topic, 6)
		}
		next, classic := &kafkaMember{b: b, id: "next", assignor: &blocks, topics: both}, newClassic(b, "classic")
		classic.join.Protocols[0].Metadata = subscription(both...)
		check(t, next.beat(t.Context()))
		check(t, classic.rejoin(t.Context()))
		p := joinPeer(t, b, group.PeerConfig{Topics: both, Client: "peer"}) // of the Go library, or over HTTP
		for range 5 {
			yield(t, p)
			classic.live(t, 3*time.Second)
			next.live(t, 3*time.Second)
		}
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		var blocksOf []string
		for _, m := range d.Members {
			for _, share := range m.Has {
				blocksOf = append(blocksOf, fmt.Sprint(share.Topic, share.Partitions))
			}
		}
		slices.Sort(blocksOf)
		want := []string{"orders[0 1]", "orders[2 3]", "orders[4 5]", "payments[0 1]", "payments[2 3]", "payments[4 5]"}
		if d.Assignor != "range" || d.State != group.Stable || len(d.Members) != 3 || !slices.Equal(blocksOf, want) {
			t.Fatalf("described %+v", d)
		}
		for _, m := range d.Members {
			if !slices.Equal(m.Has[0].Partitions, m.Has[1].Partitions) {
				t.Errorf("%s, a client of %q, has %v", m.ID, m.ClientID, m.Has)
			}
		}
	})
}

// A classic group that an older weir stored, which knew no members of another kind, goes on when
// one joins: its members keep their ids, their generation, their partitions and their offsets.
func TestAStoredGroupOfAnOlderWeirGoesOnWithConsumers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: -1})
		orders := b.topic(t, "orders", 4)
		assigned := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "orders", Partitions: []int32{0, 1, 2, 3}}}}
		state := fmt.Sprintf(`{"generation":3,"protocol_type":"consumer","protocol":"range","leader":"old-1","members":[{"id":"old-1","client_id":"old","client_host":"/10.0.0.7",`+
			`"session_ms":10000,"rebalance_ms":30000,"partitions":{"orders":[0,1,2,3]},"subscription":%q,"assignment":%q}]}`,
			base64.StdEncoding.EncodeToString(subscription("orders")), base64.StdEncoding.EncodeToString(assigned.AppendTo(nil)))
		_, err := b.log.Append(t.Context(), eventlog.Entry{Puts: []eventlog.Put{
			{Key: group.StateKey("g"), Version: 1, Value: []byte(state)},
			{Key: "group/owner/g", Version: 1, Value: []byte(`{"host":"before","pid":7}`)},
			{Key: group.OffsetKey("g", orders[2].TopicPartition), Version: 1, Value: []byte(`{"topic":"orders","partition":2,"offset":41,"leader_epoch":-1}`)},
		}})
		check(t, err)

		next := &kafkaMember{b: b, id: "next"}
		check(t, next.beat(t.Context()))
		if next.epoch <= 3 {
			t.Errorf("the group's generation was 3, and is %d", next.epoch)
		}
		old := newClassic(b, "old")
		old.join.Member, old.joined.Generation = "old-1", 3
		check(t, old.commit(t.Context(), at(orders[0], 7)))
		wantErr(t, old.beat(t.Context()), group.ErrRebalancing)
		for range 4 {
			old.live(t, 3*time.Second)
			check(t, next.beat(t.Context()))
		}
		if old.join.Member != "old-1" || len(old.has) != 2 || len(next.has) != 2 {
			t.Errorf("%q has %v, and the new member %v", old.join.Member, old.has, next.has)
		}
		wantOffset(t, b, "g", orders[0].TopicPartition, 7)
		wantOffset(t, b, "g", orders[2].TopicPartition, 41)
	})
}
