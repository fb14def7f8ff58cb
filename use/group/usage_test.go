package group_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

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
		b := startBroker(t, memory.New(), group.Config{MembersBytes: 100_000})
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
		check(t, from(b, "/1", "next", 8_000).enter(t.Context()))
		time.Sleep(31 * time.Minute)
		for n := range 5 {
			check(t, from(b, "/4", fmt.Sprint("later", n), 8_000).enter(t.Context()))
		}
	})
}

func TestAMemberThatJoinsAgainIsCountedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{MembersBytes: 100_000})
		p := from(b, "/1", "g", 30_000)
		for range 5 {
			check(t, p.enter(t.Context()))
			check(t, p.sync(t.Context()))
		}
	})
}

func TestNoHostLocksOthersOutOfNewGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{GroupsMax: 10})
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
		for n := range 4 {
			check(t, from(b, "/other", fmt.Sprint("other", n), 10).enter(t.Context()))
		}
	})
}
