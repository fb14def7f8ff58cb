package group_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// from makes a player at a host, whose subscription has so many bytes.
func from(b *broker, host, name string, size int) *player {
	p := newPlayer(b, name, "p")
	p.join.ClientHost = host
	p.join.Session = 30 * time.Minute
	p.join.Protocols[0].Metadata = bytes.Repeat([]byte{'x'}, size)
	return p
}

func TestMembersOfAllGroupsShareBoundedMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 100_000}))
		var in []*player
		for _, host := range []string{"/1", "/2", "/3"} {
			for n := 0; ; n++ {
				p := from(b, host, fmt.Sprint(host, n), 8_000)
				err := p.enter(t.Context())
				if err != nil {
					wantErr(t, err, group.ErrUnavailable)
					break
				}
				check(t, p.sync(t.Context()))
				in = append(in, p)
				if len(in) > 40 {
					t.Fatal("100,000 bytes hold more than 40 members of 8,000 bytes")
				}
			}
			if host == "/1" && len(in) > 6 {
				t.Errorf("one host has %d members of 8,000 bytes, more than half of 100,000", len(in))
			}
		}
		if len(in) < 8 {
			t.Errorf("%d members of 8,000 bytes fit into 100,000", len(in))
		}
		// Who left, and whose session ran out, makes space.
		_, err := b.Leave(t.Context(), in[0].join.Group, []group.Leaver{{Member: in[0].join.Member}})
		check(t, err)
		check(t, from(b, "/4", "next", 8_000).enter(t.Context()))
		time.Sleep(31 * time.Minute)
		for n := range 5 {
			check(t, from(b, fmt.Sprint("/", 5+n), fmt.Sprint("later", n), 8_000).enter(t.Context()))
		}
	})
}

// However many hosts take as much as they can, one more gets in.
func TestGreedyHostsLeaveRoomForOneMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 1_000_000, GroupsMax: 1000}))
		for h := range 5 {
			host := fmt.Sprint("/greedy", h)
			for n := 0; ; n++ {
				p := from(b, host, fmt.Sprint(host, n), 2_000)
				err := p.enter(t.Context())
				if err != nil {
					wantErr(t, err, group.ErrUnavailable)
					break
				}
				check(t, p.sync(t.Context()))
			}
		}
		check(t, from(b, "/modest", "modest", 2_000).enter(t.Context()))
	})
}

func TestAMemberThatJoinsAgainIsCountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 100_000}))
		p := from(b, "/1", "g", 30_000)
		for range 5 {
			check(t, p.enter(t.Context()))
			check(t, p.sync(t.Context()))
		}
	})
}

func TestNoHostLocksOthersOutOfNewGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupsMax: 10}))
		taken := 0
		for n := range 10 {
			p := from(b, "/greedy", fmt.Sprint("greedy", n), 10)
			if err := p.enter(t.Context()); errors.Is(err, group.ErrUnavailable) {
				break
			} else {
				check(t, err)
			}
			taken++
		}
		if taken != 5 {
			t.Errorf("one host has members in %d of 10 groups, want 5", taken)
		}
		for n := range 2 { // half of what is left, and others half of that
			check(t, from(b, "/other", fmt.Sprint("other", n), 10).enter(t.Context()))
		}
		check(t, from(b, "/third", "third", 10).enter(t.Context()))
	})
}

// assign has a leader bring one assignment, for itself.
func (p *player) assign(t *testing.T, size int) error {
	_, err := p.b.Sync(t.Context(), group.Sync{Group: p.join.Group, Member: p.join.Member, Generation: p.joined.Generation,
		Assignments: map[string][]byte{p.join.Member: make([]byte, size), "nobody": make([]byte, 1000*size)}})
	return err
}

func TestAssignmentsOfOneHostLockNoOthersOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 100_000}))
		taken, refused := 0, (*player)(nil)
		for n := 0; n < 30 && refused == nil; n++ {
			p := from(b, "/greedy", fmt.Sprint("greedy", n), 10)
			check(t, p.enter(t.Context()))
			if err := p.assign(t, 8_000); err != nil {
				wantErr(t, err, group.ErrUnavailable)
				refused = p
			} else {
				taken++
			}
		}
		if taken != 5 {
			t.Errorf("one host brought %d assignments of 8,000 bytes, want 5: half of 100,000 bytes", taken)
		}
		other := from(b, "/other", "other", 10)
		check(t, other.enter(t.Context()))
		check(t, other.assign(t, 1_000))

		// The generation stays: its leader may bring less.
		before := refused.joined.Generation
		check(t, refused.enter(t.Context()))
		check(t, refused.assign(t, 100))
		if refused.joined.Generation != before {
			t.Errorf("generation %d after %d", refused.joined.Generation, before)
		}
	})
}

// An assignment is counted where it comes from: a leader fills no share but its own.
func TestAnAssignmentIsCountedAtItsLeadersHost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: 3 * time.Second}.With(group.Limits{MembersBytes: 100_000}))
		lead, follow := from(b, "/1", "g", 10), from(b, "/2", "g", 10)
		settle(t, lead, follow)
		if follow.joined.Leader == follow.joined.Member {
			lead, follow = follow, lead
		}
		// Whoever leads joins again, and so begins a generation, with a larger assignment for the
		// other member.
		var wg sync.WaitGroup
		wg.Go(func() { check(t, lead.enter(t.Context())) })
		time.Sleep(time.Second)
		check(t, follow.enter(t.Context()))
		wg.Wait()
		_, err := b.Sync(t.Context(), group.Sync{Group: "g", Member: lead.join.Member, Generation: lead.joined.Generation,
			Assignments: map[string][]byte{follow.join.Member: make([]byte, 45_000)}})
		check(t, err)
		check(t, from(b, follow.join.ClientHost, "its own", 8_000).enter(t.Context()))
		wantErr(t, from(b, lead.join.ClientHost, "another", 8_000).enter(t.Context()), group.ErrUnavailable)
	})
}

func TestMemberIDsGivenToOneHostLockNoOthersOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 100_000}))
		ids := 0
		ask := func(host, name string) error {
			p := from(b, host, name, 10)
			_, err := b.Join(t.Context(), p.join)
			return err
		}
		for n := range 20 {
			p := from(b, "/greedy", fmt.Sprint("greedy", n), 10)
			if err := p.enter(t.Context()); err != nil {
				wantErr(t, err, group.ErrUnavailable)
				break
			}
			check(t, p.sync(t.Context()))
			for range 20 {
				err := ask("/greedy", p.join.Group)
				if errors.Is(err, group.ErrUnavailable) {
					break
				}
				wantErr(t, err, group.ErrMemberIDRequired)
				ids++
			}
		}
		if ids == 0 || ids > 100_000/2/512 {
			t.Errorf("one host holds %d unused ids of 512 bytes, in half of 100,000 bytes", ids)
		}
		for n := range 20 {
			check(t, from(b, "/other", fmt.Sprint("other", n), 10).enter(t.Context()))
		}
		time.Sleep(time.Minute)
		wantErr(t, ask("/greedy", "another"), group.ErrMemberIDRequired)
	})
}

func TestAJoinThatIsRefusedEvictsNoGroup(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersBytes: 100_000}))
		for n := range 5 {
			p := from(b, "/1", fmt.Sprint("empty", n), 10)
			check(t, p.enter(t.Context()))
			check(t, p.sync(t.Context()))
			_, err := b.Leave(t.Context(), p.join.Group, []group.Leaver{{Member: p.join.Member}})
			check(t, err)
		}
		full := 0
		for _, host := range []string{"/1", "/2", "/3"} {
			for n := range 6 {
				p := from(b, host, fmt.Sprint(host, n), 8_000)
				if p.enter(t.Context()) == nil {
					full++
				}
			}
		}
		if n := b.InMemory(); n < 5+full {
			t.Errorf("%d groups are in memory, want the %d with members and 5 that take nothing", n, full)
		}
	})
}

// hosted starts a member of the consumer protocol in a group: its other members are a host's then.
func hosted(t *testing.T, b *broker, host, name string) {
	t.Helper()
	_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: name, Member: name + host, ClientID: "one", ClientHost: host, Rebalance: time.Minute,
		Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
	check(t, err)
}

// large makes a player at a client host, whose subscription has so many bytes besides the topic.
func large(b *broker, clientHost, name string, size int) *player {
	p := from(b, clientHost, name, 0)
	meta := kmsg.ConsumerMemberMetadata{Topics: []string{"orders"}, UserData: make([]byte, size)}
	p.join.Protocols[0].Metadata = meta.AppendTo(nil)
	return p
}

// What members of a group may bring is bounded, also if the group has members of the consumer
// protocol.
func TestWhatMembersOfAHostBringIsBounded(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupBytes: 100_000, MembersBytes: 200_000}))
		b.topic(t, "orders", 4)
		hosted(t, b, "/0", "g")
		in := 0
		var err error
		for n := 0; n < 20 && err == nil; n++ {
			if err = large(b, fmt.Sprint("/", n), "g", 20_000).enter(t.Context()); err == nil {
				in++
			}
		}
		wantErr(t, err, group.ErrTooLarge)
		if in < 3 || in > 4 {
			t.Errorf("%d members of 20,000 bytes have 100,000", in)
		}
		in = 0
		for n := range 10 { // of one client host, in groups of their own
			name := fmt.Sprint("of", n)
			hosted(t, b, "/greedy", name)
			if err = large(b, "/greedy", name, 20_000).enter(t.Context()); err != nil {
				break
			}
			in++
		}
		wantErr(t, err, group.ErrUnavailable)
		if in != 2 {
			t.Errorf("one client host has %d members of 20,000 bytes in half of the 120,000 that others leave", in)
		}
		hosted(t, b, "/modest", "modest")
		check(t, large(b, "/modest", "modest", 1_000).enter(t.Context()))
	})
}

func TestNoClientHostLocksOthersOutOfNewConsumerGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupsMax: 10}))
		b.topic(t, "orders", 4)
		join := func(host, name string) error {
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: name, Member: name, ClientID: "one", ClientHost: host, Rebalance: time.Minute,
				Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
			return err
		}
		taken := 0
		for n := range 10 {
			if err := join("/greedy", fmt.Sprint("greedy", n)); err != nil {
				wantErr(t, err, group.ErrUnavailable)
				break
			}
			taken++
		}
		if taken != 5 {
			t.Errorf("one client host has members in %d of 10 groups, want 5", taken)
		}
		for n := range 2 { // half of what is left, and others half of that
			check(t, join("/other", fmt.Sprint("other", n)))
		}
		check(t, join("/third", "third"))
		wantErr(t, join("/greedy", "another"), group.ErrUnavailable)
		for n := range 3 { // two remain, and others leave seven
			name := fmt.Sprint("greedy", n)
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: name, Member: name, Epoch: -1})
			check(t, err)
		}
		check(t, join("/greedy", "another"))
	})
}

// A join that is refused takes no share of its client host.
func TestARefusedJoinIsNotCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupsMax: 10, MembersMax: 1}))
		b.topic(t, "orders", 4)
		for n := range 5 {
			name := fmt.Sprint("full", n)
			hosted(t, b, "/0", name)
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: name, Member: "late", ClientID: "late", ClientHost: "/1", Rebalance: time.Minute,
				Topics: []string{"orders"}, Owned: []group.TopicPartition{}})
			wantErr(t, err, group.ErrFull)
		}
		hosted(t, b, "/1", "another")
	})
}
