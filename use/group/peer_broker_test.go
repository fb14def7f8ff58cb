package group_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// A group of living peers is shown by any broker, and touched by none.
func TestBrokersShowPeersAndLeaveThemAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{}.With(group.Limits{OffsetRetention: time.Hour}))
		orders, old := b.topic(t, "orders", 3), b.topic(t, "old", 1)
		_, err := b.Commit(t.Context(), simple("g", at(old[0], 1))) // so the broker knows the group, as an empty one
		check(t, err)
		p := joinPeer(t, b, group.PeerConfig{Client: "till"})
		joinPeer(t, b, group.PeerConfig{Client: "shop"})
		synctest.Wait()
		yield(t, p)
		synctest.Wait()
		generation := p.Generation()

		kafka := newPlayer(b, "g", "k")
		kafka.join.Protocols[0].Name = "mine"
		wantErr(t, kafka.enter(t.Context()), group.ErrInconsistentProtocol)
		kafka.join.Protocols = append(kafka.join.Protocols, group.Protocol{Name: "weir"})
		wantErr(t, kafka.enter(t.Context()), group.ErrInconsistentProtocol)
		wantErr(t, b.Heartbeat(t.Context(), group.Beat{Group: "g", Member: p.ID(), Generation: generation}), group.ErrUnknownMember)
		errs, err := b.Leave(t.Context(), "g", []group.Leaver{{Member: p.ID()}})
		check(t, err)
		wantErr(t, errs[0], group.ErrUnknownMember)
		_, err = b.Sync(t.Context(), group.Sync{Group: "g", Member: p.ID(), Generation: generation})
		wantErr(t, err, group.ErrUnknownMember)
		_, err = b.Commit(t.Context(), simple("g", at(orders[0], 5)))
		wantErr(t, err, group.ErrUnknownMember)
		_, err = b.Commit(t.Context(), group.Commit{Group: "g", Member: p.ID(), Generation: generation, Offsets: orders[:1]})
		wantErr(t, err, group.ErrUnknownMember)
		wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotEmpty)
		errs, err = b.DeleteOffsets(t.Context(), "g", orders[:1])
		check(t, err)
		wantErr(t, errs[0], group.ErrSubscribed)

		for _, broker := range []*broker{b, startBroker(t, store, group.Config{})} {
			listed, err := broker.List(t.Context(), nil)
			check(t, err)
			if len(listed) != 1 || listed[0] != (group.Listed{Group: "g", ProtocolType: "consumer", State: group.Stable}) {
				t.Errorf("listed %+v", listed)
			}
			d, err := broker.Describe(t.Context(), "g")
			check(t, err)
			if d.State != group.Stable || d.ProtocolType != "consumer" || len(d.Members) != 2 {
				t.Fatalf("described %+v", d)
			}
			shares := map[string]string{}
			for _, m := range d.Members {
				shares[m.ClientID] = string(m.Assignment)
				if string(m.Metadata) != "\x00\x00\x00\x00\x00\x01\x00\x06orders\xff\xff\xff\xff" {
					t.Errorf("%s is said to read %q", m.ClientID, m.Metadata)
				}
			}
			if want := "\x00\x00\x00\x00\x00\x01\x00\x06orders\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff"; shares["till"] != want {
				t.Errorf("the first is said to have %q", shares["till"])
			}
			if !strings.Contains(shares["shop"], "\x00\x00\x00\x01\x00\x00\x00\x02") {
				t.Errorf("the second is said to have %q", shares["shop"])
			}
			stats, _, err := broker.Stats(t.Context())
			check(t, err)
			if len(stats) != 1 || stats[0].Members != 2 {
				t.Errorf("stats %+v", stats)
			}
		}
		time.Sleep(80 * time.Minute) // sweeps come and go, and an offset that nobody uses is old
		if p.Generation() != generation {
			t.Errorf("generation %d became %d", generation, p.Generation())
		}
		wantHas(t, p, "orders:0,1")
		wantOffset(t, b, "g", old[0].TopicPartition, 1)
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 6)}))
		wantOffset(t, b, "g", orders[0].TopicPartition, 6) // a broker that cached the group sees what others commit
	})
}

func TestAGroupOfDeadPeersIsEmpty(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		dies := func(name string) *group.Peer {
			p, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: name, Topics: []string{"orders"}, Logger: quiet})
			check(t, err)
			check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 4)}))
			return p
		}
		p := dies("g")
		dies("h")
		time.Sleep(11 * time.Second)
		listed, err := b.List(t.Context(), []string{"empty"})
		check(t, err)
		if len(listed) != 2 {
			t.Errorf("listed %+v", listed)
		}
		kafka := newPlayer(b, "g", "k")
		settle(t, kafka)
		wantOffset(t, b, "g", orders[0].TopicPartition, 4)
		wantErr(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 5)}), group.ErrFenced)
		wantErr(t, p.Run(t.Context()), group.ErrFenced)
		_, err = b.Leave(t.Context(), "g", []group.Leaver{{Member: kafka.join.Member}})
		check(t, err)

		check(t, b.Delete(t.Context(), "g"))
		check(t, b.Delete(t.Context(), "h"))
		wantNothingKept(t, store)

		dies("i")
		time.Sleep(8 * day)
		wantNothingKept(t, store)
	})
}

func TestPeersDoNotJoinMembersThatAssignByThemselves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 1)
		kafka := newPlayer(b, "g", "k")
		kafka.join.Protocols[0].Name = "stream"
		settle(t, kafka)
		cfg := group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet}
		_, err := b.JoinPeer(t.Context(), cfg)
		wantErr(t, err, group.ErrInconsistentProtocol)
		if !strings.Contains(err.Error(), "Stop them") {
			t.Errorf("it does not say what to do: %v", err)
		}
		_, err = b.Leave(t.Context(), "g", []group.Leaver{{Member: kafka.join.Member}})
		check(t, err)
		p, err := b.JoinPeer(t.Context(), cfg)
		check(t, err)
		wantHas(t, p, "orders:0")
		check(t, p.Leave(t.Context()))
		settle(t, newPlayer(b, "g", "k")) // and back, without a wait
	})
}

// Offsets are what the store holds, whoever put them there.
func TestOffsetsOfOthersAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 2)
		for i, name := range []string{"new", "known"} {
			if name == "known" {
				commit(t, b, name, at(orders[0], 1), at(orders[1], 1))
			}
			for range 2 {
				state, err := b.log.Get(t.Context(), group.StateKey(name))
				check(t, err)
				_, err = b.log.Append(t.Context(), group.OffsetEntry(state, name, []group.Committed{at(orders[0], eventlog.Offset(7+i))}))
				check(t, err)
				wantOffset(t, b, name, orders[0].TopicPartition, eventlog.Offset(7+i))
			}
			check(t, b.Delete(t.Context(), name))
			wantOffset(t, b, name, orders[0].TopicPartition, -1)
		}
	})
}
