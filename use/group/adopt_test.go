package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// hookedStore calls before and after once, around a commit that changes the state of the group g,
// and get before each read of it.
type hookedStore struct {
	eventlog.Store
	mu     sync.Mutex
	before func()
	after  func() error
	get    func() error
}

func (s *hookedStore) set(change func(*hookedStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// committed reports whether after was called.
func (s *hookedStore) committed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.after == nil
}

func (s *hookedStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	of := func(e eventlog.Entry) bool {
		return slices.ContainsFunc(e.Puts, func(p eventlog.Put) bool { return p.Key == group.StateKey("g") })
	}
	var before func()
	var after func() error
	if slices.ContainsFunc(flush, of) {
		s.mu.Lock()
		before, s.before = s.before, nil
		after, s.after = s.after, nil
		s.mu.Unlock()
	}
	if before != nil {
		before()
	}
	out, err := s.Store.Commit(ctx, flush)
	if after != nil {
		if err := after(); err != nil {
			return nil, err
		}
	}
	return out, err
}

func (s *hookedStore) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if slices.Contains(keys, group.StateKey("g")) {
		s.mu.Lock()
		get := s.get
		s.mu.Unlock()
		if get != nil {
			if err := get(); err != nil {
				return nil, err
			}
		}
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

func (s *hookedStore) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.mu.Lock()
	get := s.get
	s.mu.Unlock()
	if get != nil && strings.HasPrefix(prefix, "group/state/") {
		if err := get(); err != nil {
			return nil, err
		}
	}
	return s.Store.List(ctx, prefix, after, limit)
}

func overlap(a, b []group.TopicPartition) (out []group.TopicPartition) {
	for _, tp := range a {
		if slices.Contains(b, tp) {
			out = append(out, tp)
		}
	}
	return out
}

func own(p *running) (out []group.TopicPartition) {
	for _, a := range p.Assignment().Own {
		out = append(out, a.TopicPartition)
	}
	return out
}

// The old host tells its member of a partition while the new one adopts it.
func TestAnAdoptedMemberKeepsWhatItsOldHostToldItLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		hooked := &hookedStore{Store: store}
		b, other := startBroker(t, store, group.Config{}), startBroker(t, hooked, group.Config{})
		b.topic(t, "orders", 6)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		check(t, one.beat(t.Context()))
		check(t, two.beat(t.Context()))
		time.Sleep(2 * time.Second)
		p := joinPeer(t, b, group.PeerConfig{})
		for range 8 {
			check(t, one.beat(t.Context()))
			check(t, two.beat(t.Context()))
			time.Sleep(2 * time.Second)
		}
		hooked.set(func(s *hookedStore) {
			s.before = func() {
				p.stop() // its partitions go to one and two, which are told
				time.Sleep(2 * time.Second)
				check(t, one.beat(t.Context()))
			}
		})
		two.b = other
		check(t, two.beat(t.Context()))
		p2 := joinPeer(t, b, group.PeerConfig{})
		time.Sleep(2500 * time.Millisecond)
		if both := overlap(own(p2), one.has); len(both) > 0 {
			t.Errorf("two members at once: %v", both)
		}
	})
}

// A heartbeat that comes late, and to a broker that adopts its member for it, names nothing that
// came after it. That is not given up.
func TestALateHeartbeatAtAnotherBrokerGivesNothingUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		p := joinPeer(t, b, group.PeerConfig{})
		one.live(t, 20*time.Second)
		if len(one.has) != 2 {
			t.Fatalf("it has %v", one.has)
		}
		late := group.ConsumerBeat{Group: "g", Member: "one", Epoch: one.epoch, ClientID: "one", Rebalance: time.Minute, Topics: []string{"orders"}, Owned: slices.Clone(one.has)}
		p.stop()
		time.Sleep(2 * time.Second)
		check(t, one.beat(t.Context()))
		reads := slices.Clone(one.has)
		if len(reads) != 4 {
			t.Fatalf("it has %v", reads)
		}
		p = joinPeer(t, b, group.PeerConfig{})
		if _, err := other.ConsumerHeartbeat(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if both := overlap(own(p), reads); len(both) > 0 {
			t.Errorf("two members at once: %v", both)
		}
		one.has = reads
		one.live(t, 20*time.Second)
		if len(one.has) != 2 || len(own(p)) != 2 {
			t.Errorf("they have %v and %v", one.has, own(p))
		}
	})
}

var errLost = fmt.Errorf("the answer was lost: %w", eventlog.ErrUnsure)

// The client that caused the adoption goes while it is written, and another request waits for it.
func TestAnAdoptionThatNobodyWaitsForIsOne(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		hooked := &hookedStore{Store: store}
		b, other := startBroker(t, store, group.Config{}), startBroker(t, hooked, group.Config{})
		b.topic(t, "orders", 4)
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		for range 5 {
			check(t, one.beat(t.Context()))
			check(t, two.beat(t.Context()))
			time.Sleep(3 * time.Second)
		}
		b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		hooked.set(func(s *hookedStore) {
			s.after = func() error { // two's client goes while the adoption is written
				time.Sleep(5 * time.Millisecond)
				cancel()
				time.Sleep(10 * time.Millisecond)
				return nil
			}
		})
		two.b, one.b = other, other
		var running sync.WaitGroup
		running.Go(func() {
			_ = two.beat(ctx) // the change is made for all members, whoever waits for it
		})
		running.Go(func() {
			time.Sleep(time.Millisecond)
			// one asks for two's sake: any request of a member that is in flight
			_, _ = other.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", Epoch: one.epoch, Rebalance: -1}) // it may fail
		})
		running.Wait()
		p, q := joinPeer(t, other, group.PeerConfig{}), joinPeer(t, other, group.PeerConfig{})
		time.Sleep(2500 * time.Millisecond)
		if both := overlap(slices.Concat(own(p), own(q)), two.has); len(both) > 0 {
			t.Errorf("two members at once: %v", both)
		}
	})
}

// The answer to the change of protocol is lost while two members join.
func TestAClassicMemberKeepsItsPartitionsWhenTheAnswerToTheChangeIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		hooked := &hookedStore{Store: store}
		b := startBroker(t, hooked, group.Config{})
		b.topic(t, "orders", 4)
		old := newClassic(b, "old")
		old.cooperates()
		check(t, old.rejoin(t.Context()))
		old.live(t, 5*time.Second)
		hooked.set(func(s *hookedStore) { s.after = func() error { time.Sleep(50 * time.Millisecond); return errLost } })
		one, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}
		var running sync.WaitGroup
		running.Go(func() { _ = one.beat(t.Context()) }) // it may fail
		running.Go(func() { time.Sleep(10 * time.Millisecond); _ = two.beat(t.Context()) })
		running.Wait()
		time.Sleep(2500 * time.Millisecond)
		_, _ = one.beat(t.Context()), two.beat(t.Context())
		var both []int32
		for _, tp := range slices.Concat(one.has, two.has) {
			if slices.Contains(old.has, tp.Partition) {
				both = append(both, tp.Partition)
			}
		}
		if len(both) > 0 {
			t.Errorf("two members at once: %v", both)
		}
	})
}

// A member comes over to a broker that has others, while the store's answers are lost for a second.
// Peers join before that, so that partitions are being given up, or after it.
// Whoever waits for a write of unknown outcome is told to ask again: Java's client ends for good at
// an error that it does not expect.
func TestAWriteOfUnknownOutcomeIsToBeAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		hooked := &hookedStore{Store: memory.New()}
		b := startBroker(t, hooked, group.Config{})
		b.topic(t, "orders", 4)
		unsure := func() {
			hooked.set(func(s *hookedStore) {
				s.after = func() error { return errLost }
				s.get = func() error {
					if hooked.committed() {
						return fmt.Errorf("the store is away: %w", eventlog.ErrUnavailable)
					}
					return nil
				}
			})
		}
		back := func() { hooked.set(func(s *hookedStore) { s.get = nil }) }
		m := &kafkaMember{b: b, id: "one"}
		unsure()
		wantErr(t, m.beat(t.Context()), group.ErrUnavailable)
		back()
		check(t, m.beat(t.Context()))
		unsure()
		left := &kafkaMember{b: b, id: "one", epoch: -1}
		wantErr(t, left.beat(t.Context()), group.ErrUnavailable)
		back()
		check(t, (&kafkaMember{b: b, id: "two"}).beat(t.Context()))
	})
}

func TestAPatternThatCostsMuchIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 4)
		join := func(pattern string) error {
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", ClientID: "one", Rebalance: time.Minute, Pattern: &pattern, Owned: []group.TopicPartition{}})
			return err
		}
		for _, p := range []string{strings.Repeat("[^a]{0,1000}", 300), strings.Repeat("a{1000}", 11), "(a{100}){101}"} {
			wantErr(t, join(p), group.ErrInvalidPattern)
		}
		check(t, join("orders|([a-z0-9._-]{1,200}[.]){0,4}eu"))
	})
}

func TestAPatternThatMatchesTooManyTopicsIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		for i := range 1001 {
			b.topic(t, fmt.Sprint("t", i), 1)
		}
		join := func(pattern string) error {
			_, err := b.ConsumerHeartbeat(t.Context(), group.ConsumerBeat{Group: "g", Member: "one", ClientID: "one", Rebalance: time.Minute, Pattern: &pattern, Owned: []group.TopicPartition{}})
			return err
		}
		wantErr(t, join("t[0-9]+"), group.ErrInvalidRequest)
		check(t, join("t[0-9]{1,3}"))
	})
}

func TestAnAdoptionOfUnknownOutcomeTakesNothing(t *testing.T) {
	for _, joinBefore := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			store := memory.New()
			hooked := &hookedStore{Store: store}
			b, other := startBroker(t, store, group.Config{}), startBroker(t, hooked, group.Config{})
			b.topic(t, "orders", 6)
			one, two, three := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "two"}, &kafkaMember{b: other, id: "three"}
			for range 8 {
				for _, m := range []*kafkaMember{one, two, three} {
					check(t, m.beat(t.Context()))
				}
				time.Sleep(3 * time.Second)
			}
			var peers []*running
			join := func() {
				peers = append(peers, joinPeer(t, other, group.PeerConfig{}), joinPeer(t, other, group.PeerConfig{}))
				time.Sleep(1500 * time.Millisecond)
			}
			if joinBefore {
				join()
			}
			b.stop()
			down := time.Now().Add(time.Second)
			hooked.set(func(s *hookedStore) {
				s.after = func() error { return errLost }
				s.get = func() error {
					if time.Now().Before(down) && hooked.committed() {
						return fmt.Errorf("the store is away: %w", eventlog.ErrUnavailable)
					}
					return nil
				}
			})
			one.b, two.b = other, other
			_ = two.beat(t.Context()) // it may fail
			time.Sleep(3 * time.Second)
			if !joinBefore {
				join()
			}
			for _, p := range peers {
				if both := overlap(own(p), slices.Concat(one.has, two.has)); len(both) > 0 {
					t.Errorf("peers joined before: %v; two members at once: %v", joinBefore, both)
				}
			}
		})
	}
}

// Two brokers that their clients take for the coordinator, each, have members of one group. A third
// one takes the second one's place. The members stay where they ask, and one that has crashed is
// evicted: nobody adopts it again and again.
func TestAMemberIsAdoptedWhereItAsksAndNoOtherIs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other, next := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 6)
		one, crashed, two := &kafkaMember{b: b, id: "one"}, &kafkaMember{b: b, id: "crashed"}, &kafkaMember{b: other, id: "two"}
		for range 8 {
			for _, m := range []*kafkaMember{one, crashed, two} {
				check(t, m.beat(t.Context()))
			}
			time.Sleep(3 * time.Second)
		}
		other.stop()
		two.b = next
		live := func(d time.Duration) {
			for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(5 * time.Second) {
				check(t, one.beat(t.Context()))
				check(t, two.beat(t.Context()))
			}
		}
		live(2 * time.Minute)
		epoch := one.epoch
		live(time.Minute)
		if len(one.has) != 3 || len(two.has) != 3 {
			t.Errorf("they have %v and %v", one.has, two.has)
		}
		if one.epoch != epoch {
			t.Errorf("the group had %d new generations in a minute in which nothing happened", one.epoch-epoch)
		}
	})
}

// Many members whose broker is gone cost few writes: those that ask while one is made share the
// next.
func TestMembersThatMoveAtOnceShareWrites(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: &slowStore{Store: memory.New(), by: 10 * time.Millisecond}}
		b, other := startBroker(t, counted, group.Config{}), startBroker(t, counted, group.Config{})
		b.topic(t, "orders", 100)
		var all []*kafkaMember
		for n := range 100 {
			all = append(all, &kafkaMember{b: b, id: fmt.Sprint("m", n)})
		}
		each := func() {
			var wg sync.WaitGroup
			for _, m := range all {
				wg.Go(func() { check(t, m.beat(t.Context())) })
			}
			wg.Wait()
		}
		for range 6 {
			each()
			time.Sleep(2 * time.Second)
		}
		b.stop()
		for _, m := range all {
			m.b = other
		}
		counted.commits.Store(0)
		each()
		if n := counted.commits.Load(); n > 6 {
			t.Errorf("100 members that moved at once took %d commits", n)
		}
	})
}

// A member that asks seldom is not evicted because its broker ended.
func TestAMemberOfADeadHostHasItsWholeSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		p := newClassic(b, "seldom") // sessions of the classic protocol may be long
		p.join.Session = 10 * time.Minute
		check(t, p.rejoin(t.Context()))
		one := &kafkaMember{b: b, id: "one"}
		for range 3 {
			check(t, one.beat(t.Context()))
			if p.beat(t.Context()) != nil {
				check(t, p.rejoin(t.Context()))
			}
			time.Sleep(3 * time.Second)
		}
		member := p.join.Member
		b.stop()
		one.b, p.b = other, other
		one.live(t, 3*time.Minute)
		if err := p.beat(t.Context()); err != nil && !errors.Is(err, group.ErrRebalancing) {
			t.Fatal(err)
		}
		check(t, p.rejoin(t.Context()))
		if p.join.Member != member || len(p.has) != 2 {
			t.Errorf("it is member %q, and was %q; it has %v", p.join.Member, member, p.has)
		}
	})
}

// A broker and a consumer die together, for example with their machine. Nobody reads the consumer's
// partitions for about a session, not for two.
func TestAMemberThatDiesWithItsBrokerIsGoneAfterASession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		b.topic(t, "orders", 4)
		dies, one := &kafkaMember{b: b, id: "dies"}, &kafkaMember{b: other, id: "one"}
		for range 8 {
			check(t, dies.beat(t.Context()))
			check(t, one.beat(t.Context()))
			time.Sleep(3 * time.Second)
		}
		b.stop()
		one.live(t, 35*time.Second)
		if len(one.has) != 2 {
			t.Errorf("one has %v before the other's session has ended", one.has)
		}
		one.live(t, 45*time.Second) // 50 s until the host is found dead, and a third of the session
		if len(one.has) != 4 {
			t.Errorf("one has %v", one.has)
		}
	})
}

// A commit that was sent before the member's broker ended does not say which epoch the member has.
func TestALateCommitDoesNotSayAMembersEpoch(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b, other := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 4)
		one := &kafkaMember{b: b, id: "one"}
		check(t, one.beat(t.Context()))
		before := one.epoch
		two := &kafkaMember{b: b, id: "two"}
		for range 5 {
			check(t, two.beat(t.Context()))
			check(t, one.beat(t.Context()))
			time.Sleep(3 * time.Second)
		}
		if one.epoch == before {
			t.Fatalf("its epoch is %d still", before)
		}
		b.stop()
		one.b, two.b = other, other
		has := slices.IndexFunc(orders, func(o group.Committed) bool { return o.TopicPartition == one.has[0] })
		_, err := other.Commit(t.Context(), group.Commit{Group: "g", Member: "one", Generation: before, Offsets: []group.Committed{at(orders[has], 1)}})
		check(t, err)
		check(t, one.beat(t.Context()))
	})
}
