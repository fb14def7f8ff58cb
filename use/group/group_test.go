package group_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

const session = 10 * time.Second

// inBubble runs a test with fake time.
func inBubble(t *testing.T, f func(t *testing.T)) { synctest.Test(t, f) }

// broker is one process: a log and a coordinator on a store.
type broker struct {
	*group.Coordinator
	log  *eventlog.Log
	stop func()
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func startBroker(t *testing.T, store eventlog.Store, cfg group.Config) *broker {
	t.Helper()
	return startFollowing(t, store, cfg, time.Hour)
}

// startFollowing starts a broker that looks so often for what other processes did.
func startFollowing(t *testing.T, store eventlog.Store, cfg group.Config, poll time.Duration) *broker {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log, err := eventlog.Open(ctx, store, eventlog.Config{Poll: poll, TotalPartitions: 1_000_000, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Logger = quiet
	c := group.New(log, cfg)
	var wg sync.WaitGroup
	groups, stopGroups := context.WithCancel(ctx)
	var inGroups sync.WaitGroup
	inGroups.Go(func() { check(t, c.Run(groups)) })
	wg.Go(func() { check(t, log.Run(ctx)) })
	stop := sync.OnceFunc(func() {
		stopGroups()
		inGroups.Wait()
		cancel()
		wg.Wait()
	})
	t.Cleanup(stop)
	return &broker{Coordinator: c, log: log, stop: stop}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// topic makes a topic and returns its partitions as offsets at 0.
func (b *broker) topic(t *testing.T, name string, partitions int) []group.Committed {
	t.Helper()
	topic, err := b.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	var out []group.Committed
	for i := range topic.Partitions {
		tp := group.TopicPartition{Topic: topic.ID, Partition: int32(i)}
		out = append(out, group.Committed{TopicPartition: tp, Name: name, LeaderEpoch: -1})
	}
	return out
}

func at(c group.Committed, o eventlog.Offset) group.Committed { c.Offset = o; return c }

// player is a client that plays a member.
type player struct {
	b        *broker
	join     group.Join
	joined   group.Joined
	assigned string
}

func newPlayer(b *broker, name, id string) *player {
	return &player{b: b, join: group.Join{
		Group: name, ClientID: id, ClientHost: "/127.0.0.1", Session: session, Rebalance: 30 * time.Second,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: subscription("orders")}},
		NeedsMemberID: true, SkipsAssigning: true,
	}}
}

// subscription is what a consumer of these topics says in its join.
func subscription(topics ...string) []byte {
	b := []byte{0, 0, 0, 0, 0, byte(len(topics))}
	for _, t := range topics {
		b = append(b, 0, byte(len(t)))
		b = append(b, t...)
	}
	return append(b, 0xff, 0xff, 0xff, 0xff)
}

// patience is how long a player waits for an answer: longer than any timeout of the group, so that
// a group that never answers fails its test.
const patience = 10 * time.Minute

// enter joins, with the detour for a member id, and waits for the generation.
func (p *player) enter(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the group never answered the join"))
	defer cancel()
	j, err := p.b.Join(ctx, p.join)
	if errors.Is(err, group.ErrMemberIDRequired) {
		p.join.Member = j.Member
		j, err = p.b.Join(ctx, p.join)
	}
	if err == nil {
		p.joined, p.join.Member = j, j.Member
	}
	return err
}

// sync fetches the assignment. A leader gives each member "<its id> in <generation>".
func (p *player) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the group never answered the sync"))
	defer cancel()
	s := group.Sync{Group: p.join.Group, Member: p.join.Member, Instance: p.join.Instance, Generation: p.joined.Generation,
		ProtocolType: "consumer", Protocol: p.joined.Protocol}
	if p.joined.Leader == p.joined.Member && !p.joined.SkipAssignment {
		s.Assignments = make(map[string][]byte)
		for _, m := range p.joined.Members {
			s.Assignments[m.Member] = fmt.Appendf(nil, "%s in %d", m.Member, p.joined.Generation)
		}
	}
	out, err := p.b.Sync(ctx, s)
	if err == nil {
		p.assigned = string(out.Assignment)
	}
	return err
}

func (p *player) beat(ctx context.Context) error {
	return p.b.Heartbeat(ctx, group.Beat{Group: p.join.Group, Member: p.join.Member, Instance: p.join.Instance, Generation: p.joined.Generation})
}

// beatUntil lives a quiet life for a while.
func (p *player) beatUntil(t *testing.T, end time.Time) {
	t.Helper()
	for time.Now().Before(end) {
		time.Sleep(min(3*time.Second, time.Until(end)))
		check(t, p.beat(t.Context()))
	}
}

// beatThrough is beatUntil while the store may be away: the coordinator may say that it does not
// know whether it still is the coordinator.
func (p *player) beatThrough(t *testing.T, end time.Time) {
	t.Helper()
	for time.Now().Before(end) {
		time.Sleep(min(3*time.Second, time.Until(end)))
		if err := p.beat(t.Context()); err != nil && !errors.Is(err, group.ErrUnavailable) {
			t.Error(err)
		}
	}
}

func (p *player) commit(ctx context.Context, offsets ...group.Committed) error {
	_, err := p.b.Commit(ctx, group.Commit{Group: p.join.Group, Member: p.join.Member, Instance: p.join.Instance,
		Generation: p.joined.Generation, Offsets: offsets})
	return err
}

// settle plays the players, as real clients do, until they share one generation and each has its
// assignment.
func settle(t *testing.T, players ...*player) {
	t.Helper()
	var mu sync.Mutex // guards settled
	settled := make(map[*player]int32)
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, p := range players {
			if g, ok := settled[p]; !ok || g != settled[players[0]] {
				return false
			}
		}
		return true
	}
	together(t, players, func(p *player) error {
		for start := time.Now(); time.Since(start) < time.Minute; {
			err := p.enter(t.Context())
			if err == nil {
				err = p.sync(t.Context())
			}
			if errors.Is(err, group.ErrUnknownMember) {
				p.join.Member = ""
			}
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			mu.Lock()
			settled[p] = p.joined.Generation
			mu.Unlock()
			for p.beat(t.Context()) == nil {
				if done() {
					return nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			mu.Lock()
			delete(settled, p)
			mu.Unlock()
		}
		return fmt.Errorf("%s did not settle", p.join.ClientID)
	})
	for _, p := range players {
		if want := fmt.Sprintf("%s in %d", p.join.Member, players[0].joined.Generation); p.assigned != want {
			t.Fatalf("assignment %q, want %q", p.assigned, want)
		}
	}
}

func together(t *testing.T, players []*player, f func(*player) error) {
	t.Helper()
	var wg sync.WaitGroup
	for _, p := range players {
		wg.Go(func() {
			t.Helper()
			check(t, f(p))
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

func wantOffset(t *testing.T, b *broker, name string, tp group.TopicPartition, want eventlog.Offset) {
	t.Helper()
	got, err := b.Fetch(t.Context(), name, []group.TopicPartition{tp})
	if err != nil {
		t.Fatal(err)
	}
	if got[0].Offset != want {
		t.Fatalf("group %q is at %d, want %d", name, got[0].Offset, want)
	}
}

func TestMembersShareAGeneration(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		if p.joined.Generation != 1 || q.joined.Generation != 1 || p.joined.Leader != q.joined.Leader || p.joined.Protocol != "range" {
			t.Fatalf("not one generation: %+v, %+v", p.joined, q.joined)
		}
		if len(p.joined.Members)+len(q.joined.Members) != 2 {
			t.Fatalf("only the leader is told of all members: %+v, %+v", p.joined, q.joined)
		}
		check(t, p.beat(t.Context()))
		check(t, q.beat(t.Context()))
	})
}

// Without it, every consumer of a fleet that starts would cause a rebalance of its own (KIP-134).
func TestFirstMembersWaitForOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: 3 * time.Second})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { check(t, p.enter(t.Context())) })
		time.Sleep(2 * time.Second)
		wg.Go(func() { check(t, q.enter(t.Context())) })
		wg.Wait()
		if p.joined.Generation != 1 || q.joined.Generation != 1 {
			t.Fatalf("they rebalanced: %+v, %+v", p.joined, q.joined)
		}
		if took := time.Since(start); took != 6*time.Second {
			t.Fatalf("joined after %v, want two delays of 3 s, as the second member extends the first one", took)
		}
	})
}

func TestMemberIDIsGivenBeforeJoining(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p := newPlayer(b, "g", "p")
		j, err := b.Join(t.Context(), p.join)
		wantErr(t, err, group.ErrMemberIDRequired)
		time.Sleep(session + time.Second)
		p.join.Member = j.Member
		_, err = b.Join(t.Context(), p.join)
		wantErr(t, err, group.ErrUnknownMember) // it was good for one session
	})
}

// Whoever was told its member id is about to join: a round that does not wait for it would be
// followed by another.
func TestRebalanceWaitsForMembersToBe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p)
		told, err := b.Join(t.Context(), q.join)
		wantErr(t, err, group.ErrMemberIDRequired)
		var wg sync.WaitGroup
		wg.Go(func() { check(t, p.enter(t.Context())) })
		time.Sleep(time.Second)
		q.join.Member = told.Member
		check(t, q.enter(t.Context()))
		wg.Wait()
		if p.joined.Generation != 2 || q.joined.Generation != 2 {
			t.Fatalf("joined %+v and %+v", p.joined, q.joined)
		}
	})
}

// A client whose connection breaks while it waits is not in the next generation, unless it comes
// back for it.
func TestClientThatGoesAwayInTheJoinIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p)
		ctx, goAway := context.WithTimeout(t.Context(), time.Second)
		defer goAway()
		wantErr(t, q.enter(ctx), group.ErrUnavailable)
		wantErr(t, p.beat(t.Context()), group.ErrRebalancing)
		start := time.Now()
		check(t, p.enter(t.Context()))
		if took := time.Since(start); took != session {
			t.Fatalf("the round took %v, want what is left of q's session", took)
		}
		if len(p.joined.Members) != 1 {
			t.Fatalf("joined %+v", p.joined)
		}
	})
}

func TestClientThatGoesAwayInTheSyncIsForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		together(t, []*player{p, q}, func(p *player) error { return p.enter(t.Context()) })
		if q.joined.Leader == q.joined.Member {
			p, q = q, p
		}
		ctx, goAway := context.WithTimeout(t.Context(), time.Second)
		defer goAway()
		wantErr(t, q.sync(ctx), group.ErrUnavailable)
		check(t, p.sync(t.Context()))
		for range 2 {
			time.Sleep(session - 2*time.Second)
			p.beat(t.Context())
		}
		wantErr(t, p.beat(t.Context()), group.ErrRebalancing)
	})
}

func TestSilentMemberLosesItsSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		for range 3 { // q is silent for 9 of its 10 s
			time.Sleep(3 * time.Second)
			check(t, p.beat(t.Context()))
		}
		time.Sleep(2 * time.Second)
		wantErr(t, p.beat(t.Context()), group.ErrRebalancing)
		wantErr(t, q.beat(t.Context()), group.ErrUnknownMember)
		settle(t, p)
		if p.joined.Generation != 2 || len(p.joined.Members) != 1 {
			t.Fatalf("p is not alone in generation 2: %+v", p.joined)
		}
	})
}

func TestMemberThatDoesNotRejoinIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		late := newPlayer(b, "g", "late")
		var wg sync.WaitGroup
		start := time.Now()
		for _, m := range []*player{p, late} {
			wg.Go(func() { check(t, m.enter(t.Context())) })
		}
		wg.Go(func() { // q lives, but is busy
			for time.Since(start) < 29*time.Second {
				time.Sleep(time.Second)
				if err := q.beat(t.Context()); !errors.Is(err, group.ErrRebalancing) {
					t.Errorf("q is told %v, want to join again", err)
				}
			}
		})
		wg.Wait()
		if took := time.Since(start); took != 30*time.Second {
			t.Fatalf("the join took %v, want the rebalance timeout", took)
		}
		wantErr(t, q.beat(t.Context()), group.ErrUnknownMember)
	})
}

func TestMemberThatDoesNotSyncIsLeftOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		p.join.Session, q.join.Session = time.Minute, time.Minute
		settle(t, p, q)
		if q.joined.Leader != q.joined.Member {
			p, q = q, p
		}
		var leader sync.WaitGroup
		leader.Go(func() {
			check(t, q.enter(t.Context()))
			for start := time.Now(); q.beat(t.Context()) == nil; time.Sleep(time.Second) { // it lives, and does not assign
				if time.Since(start) > patience {
					t.Error("a leader that does not assign is a member for ever")
					return
				}
			}
		})
		defer leader.Wait()
		time.Sleep(time.Second)
		check(t, p.enter(t.Context()))
		start := time.Now()
		wantErr(t, p.sync(t.Context()), group.ErrRebalancing)
		if took := time.Since(start); took != 30*time.Second {
			t.Fatalf("told after %v, want the rebalance timeout", took)
		}
		settle(t, p)
	})
}

func TestLeavingRebalancesAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		errs, err := b.Leave(t.Context(), "g", []group.Leaver{{Member: q.join.Member}, {Member: q.join.Member}, {Instance: "nobody"}})
		check(t, err)
		check(t, errs[0])
		wantErr(t, errs[1], group.ErrUnknownMember)
		wantErr(t, errs[2], group.ErrUnknownMember)
		wantErr(t, p.beat(t.Context()), group.ErrRebalancing)
		settle(t, p)
		_, err = b.Leave(t.Context(), "g", []group.Leaver{{Member: p.join.Member}})
		check(t, err)
		d, err := b.Describe(t.Context(), "g")
		check(t, err)
		if d.State != group.Empty || d.Generation != 3 {
			t.Fatalf("group is %+v, want it empty at generation 3", d)
		}
	})
}

func TestRestartNeedsNoRebalance(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 2)
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p, q)
		check(t, p.commit(t.Context(), at(orders[0], 7)))
		b.stop()

		b = startBroker(t, store, group.Config{})
		p.b, q.b = b, b
		check(t, p.beat(t.Context()))
		was := q.assigned
		check(t, q.sync(t.Context()))
		if q.assigned != was {
			t.Fatalf("assignment after the restart is %q, was %q", q.assigned, was)
		}
		wantOffset(t, b, "g", orders[0].TopicPartition, 7)
		check(t, p.commit(t.Context(), at(orders[0], 8)))
		time.Sleep(session - time.Second)
		check(t, q.beat(t.Context()))
		time.Sleep(2 * time.Second) // p's session, begun by its commit, is over
		wantErr(t, q.beat(t.Context()), group.ErrRebalancing)
	})
}

func TestRestartInMidGenerationStartsTheRoundAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		p, q := newPlayer(b, "g", "p"), newPlayer(b, "g", "q")
		settle(t, p)
		together(t, []*player{p, q}, func(p *player) error { return p.enter(t.Context()) })
		b.stop() // generation 2 has members, and no assignment

		b = startBroker(t, store, group.Config{})
		p.b, q.b = b, b
		wantErr(t, p.sync(t.Context()), group.ErrIllegalGeneration)
		wantErr(t, q.sync(t.Context()), group.ErrUnknownMember)
		q.join.Member = ""
		settle(t, p, q)
	})
}

func TestWaitingMembersAreToldWhenABrokerStops(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{InitialDelay: time.Hour})
		p := newPlayer(b, "g", "p")
		time.AfterFunc(time.Second, b.stop)
		wantErr(t, p.enter(t.Context()), group.ErrMoved)
		wantErr(t, p.enter(t.Context()), group.ErrMoved)
	})
}
