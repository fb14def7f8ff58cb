package group_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Whatever a client sends, it gets an error that says what was wrong, and the group goes on as it
// was.
func TestBadJoinsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(j *group.Join)
		want  error
	}{
		"no group":                  {func(j *group.Join) { j.Group = "" }, group.ErrInvalidGroup},
		"long group name":           {func(j *group.Join) { j.Group = string(make([]byte, 1000)) }, group.ErrInvalidGroup},
		"session of 1 ms":           {func(j *group.Join) { j.Session = time.Millisecond }, group.ErrInvalidSession},
		"session of 2^31-1 ms":      {func(j *group.Join) { j.Session = math.MaxInt32 * time.Millisecond }, group.ErrInvalidSession},
		"negative session":          {func(j *group.Join) { j.Session = -time.Second }, group.ErrInvalidSession},
		"10 MB of metadata":         {func(j *group.Join) { j.Protocols[0].Metadata = make([]byte, 10<<20) }, group.ErrTooLarge},
		"101 protocols":             {func(j *group.Join) { j.Protocols = append(make([]group.Protocol, 100), j.Protocols...) }, group.ErrTooLarge},
		"no protocols":              {func(j *group.Join) { j.Protocols = nil }, group.ErrInconsistentProtocol},
		"no protocol type":          {func(j *group.Join) { j.ProtocolType = "" }, group.ErrInconsistentProtocol},
		"another protocol type":     {func(j *group.Join) { j.ProtocolType = "connect" }, group.ErrInconsistentProtocol},
		"a protocol nobody has":     {func(j *group.Join) { j.Protocols = []group.Protocol{{Name: "mine"}} }, group.ErrInconsistentProtocol},
		"a member id of its own":    {func(j *group.Join) { j.Member = "me" }, group.ErrUnknownMember},
		"an instance nobody is":     {func(j *group.Join) { j.Member, j.Instance = "me", "nobody" }, group.ErrUnknownMember},
		"another's instance":        {func(j *group.Join) { j.Member, j.Instance = "me", "taken" }, group.ErrFencedInstance},
		"a member id of a long ago": {func(j *group.Join) { j.Group, j.Member = "new", "me" }, group.ErrUnknownMember},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b := startBroker(t, memory.New(), group.Config{})
				p := newStatic(b, "g", "taken")
				settle(t, p)
				bad := newPlayer(b, "g", "bad")
				c.spoil(&bad.join)
				_, err := b.Join(t.Context(), bad.join)
				wantErr(t, err, c.want)
				check(t, p.beat(t.Context()))
				check(t, p.sync(t.Context()))
			})
		})
	}
}

// The bounds of a session are settings, as in Kafka.
func TestASessionMayBeAsLongAsTheSettingsSay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{SessionMin: 100 * time.Millisecond, SessionMax: time.Second})
		for session, want := range map[time.Duration]error{99 * time.Millisecond: group.ErrInvalidSession, 100 * time.Millisecond: nil, time.Second: nil, 1001 * time.Millisecond: group.ErrInvalidSession} {
			p := newPlayer(b, fmt.Sprint("g", session), "p")
			p.join.Session = session
			if err := p.enter(t.Context()); !errors.Is(err, want) {
				t.Errorf("a session of %v: %v, want %v", session, err, want)
			}
		}
	})
}

func TestMembersAreAsManyAsTheSettingsSay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{MembersMax: 1})
		settle(t, newPlayer(b, "g", "p"))
		wantErr(t, newPlayer(b, "g", "q").enter(t.Context()), group.ErrFull)
	})
}

func TestBadSyncsAndHeartbeatsAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		if p.joined.Leader != p.join.Member {
			p, q = q, p
		}
		var wg sync.WaitGroup
		wg.Go(func() { check(t, p.enter(t.Context())) }) // the leader asks for a rebalance
		time.Sleep(time.Second)
		check(t, q.enter(t.Context()))
		wg.Wait()
		good := group.Sync{Group: "g", Member: q.join.Member, Generation: q.joined.Generation, ProtocolType: "consumer", Protocol: "range"}
		for _, c := range []struct {
			spoil func(*group.Sync)
			want  error
		}{
			{func(s *group.Sync) { s.Group = "" }, group.ErrInvalidGroup},
			{func(s *group.Sync) { s.Group = "other" }, group.ErrUnknownMember},
			{func(s *group.Sync) { s.Member = "other" }, group.ErrUnknownMember},
			{func(s *group.Sync) { s.Generation-- }, group.ErrIllegalGeneration},
			{func(s *group.Sync) { s.Generation++ }, group.ErrIllegalGeneration},
			{func(s *group.Sync) { s.Protocol = "sticky" }, group.ErrInconsistentProtocol},
			{func(s *group.Sync) { s.ProtocolType = "connect" }, group.ErrInconsistentProtocol},
		} {
			bad := good
			c.spoil(&bad)
			_, err := b.Sync(t.Context(), bad)
			wantErr(t, err, c.want)
		}
		beat := group.Beat{Group: "g", Member: q.join.Member, Generation: q.joined.Generation}
		check(t, b.Heartbeat(t.Context(), beat))
		beat.Generation++
		wantErr(t, b.Heartbeat(t.Context(), beat), group.ErrIllegalGeneration)
		beat.Group = ""
		wantErr(t, b.Heartbeat(t.Context(), beat), group.ErrInvalidGroup)

		// A follower that brings assignments is not listened to.
		usurper := good
		usurper.Assignments = map[string][]byte{q.join.Member: []byte("everything")}
		wg.Go(func() {
			got, err := b.Sync(t.Context(), usurper)
			check(t, err)
			q.assigned = string(got.Assignment)
		})
		time.Sleep(time.Second)
		check(t, p.sync(t.Context()))
		wg.Wait()
		if q.assigned != q.join.Member+" in 2" {
			t.Fatalf("the follower got %q", q.assigned)
		}
	})
}

func TestGroupHasABound(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{MembersMax: 2, GroupBytes: 1000}))
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		wantErr(t, newPlayer(b, "g", "third").enter(t.Context()), group.ErrFull)
		check(t, p.beat(t.Context()))

		// Ids that were asked for and never used are members to be.
		asks := newPlayer(b, "ids", "asks").join
		for range 2 {
			_, err := b.Join(t.Context(), asks)
			wantErr(t, err, group.ErrMemberIDRequired)
		}
		_, err := b.Join(t.Context(), asks)
		wantErr(t, err, group.ErrFull)

		large := newPlayer(b, "bytes", "large")
		large.join.Protocols[0].Metadata = bytes.Repeat([]byte{'x'}, 1001)
		wantErr(t, large.enter(t.Context()), group.ErrTooLarge)
	})
}

func TestManyGroupsShareBoundedMemory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupsMax: 3}))
		o := b.topic(t, "orders", 1)[0]
		names := []string{"a", "b", "c", "d", "e", "f"}
		for range 3 { // ones that are not in memory are read again
			for _, name := range names {
				_, err := b.Commit(t.Context(), simple(name, at(o, 3)))
				check(t, err)
				wantOffset(t, b, name, o.TopicPartition, 3)
			}
		}
		for _, name := range names[:3] {
			p := newPlayer(b, name, "p")
			p.join.ClientHost = "/" + name
			settle(t, p)
		}
		_, err := b.Commit(t.Context(), simple("d", at(o, 3)))
		wantErr(t, err, group.ErrUnavailable)
		groups, err := b.List(t.Context(), nil)
		check(t, err)
		if len(groups) != len(names) {
			t.Fatalf("listed %v", groups)
		}
		time.Sleep(time.Minute)
		wantOffset(t, b, "d", o.TopicPartition, 3)
	})
}

// A group that somebody is in keeps its place.
func TestGroupInUseIsNotEvicted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, &slowStore{Store: memory.New(), by: time.Second}, group.Config{}.With(group.Limits{GroupsMax: 1}))
		o := b.topic(t, "orders", 1)[0]
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := b.Commit(t.Context(), simple("a", o))
			check(t, err)
		})
		time.Sleep(100 * time.Millisecond)
		_, err := b.Commit(t.Context(), simple("b", o))
		wantErr(t, err, group.ErrUnavailable)
		wg.Wait()
	})
}

// An assignment that cannot be kept is an error for those who wait for it, and the group may try
// another.
func TestHugeAssignmentIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p := newPlayer(b, "g", "p")
		check(t, p.enter(t.Context()))
		_, err := b.Sync(t.Context(), group.Sync{Group: "g", Member: p.join.Member, Generation: 1,
			Assignments: map[string][]byte{p.join.Member: make([]byte, 16<<20)}})
		wantErr(t, err, group.ErrTooLarge)
		check(t, p.sync(t.Context()))
	})
}

// Assignments and subscriptions of consumers are looked into, so they may be broken.
func TestBrokenConsumerProtocolIsHarmless(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, broken := range [][]byte{nil, {0}, {0, 0, 0x7f, 0xff, 0xff, 0xff}, {0, 0, 0, 0, 0, 1, 0xff, 0xff}} {
			b := startBroker(t, memory.New(), group.Config{})
			other := b.topic(t, "other", 1)[0]
			p := newPlayer(b, "g", "p")
			p.join.Protocols[0].Metadata = broken
			check(t, p.enter(t.Context()))
			_, err := b.Sync(t.Context(), group.Sync{Group: "g", Member: p.join.Member, Generation: 1,
				Assignments: map[string][]byte{p.join.Member: broken}})
			check(t, err)
			errs, err := b.DeleteOffsets(t.Context(), "g", []group.Committed{other})
			check(t, err)
			if !errors.Is(errs[0], group.ErrSubscribed) {
				t.Errorf("%v: nobody knows what it reads, and its offsets could be deleted", broken)
			}
		}
	})
}
