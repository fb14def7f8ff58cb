package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

const shares = 12 // what the members of the storm share out, as a leader would partitions

// storm is a group whose members come, go and die, on a broker that restarts and a store that fails
// now and then.
type storm struct {
	t     *testing.T
	store *faulty
	b     *broker

	mu     sync.Mutex                    // guards what follows
	given  map[int32]map[string]string   // by generation: who was given what
	newest int32                         // generation
	acked  map[int32]eventlog.Offset     // by share: the last commit that was acknowledged
	owner  map[*stormer]map[int32]string // what each live member believes it has
}

// stormer is a member. Its life is a real client's: join, sync, then heartbeats and commits, until
// told to join again.
type stormer struct {
	*player
	s     *storm
	epoch int
}

func (p *stormer) live(ctx context.Context) {
	for ctx.Err() == nil {
		p.b = p.s.broker()
		err := p.enter(ctx)
		if err == nil {
			err = p.share(ctx)
		}
		if err == nil {
			err = p.work(ctx)
		}
		p.s.lost(p)
		switch {
		case errors.Is(err, group.ErrUnknownMember):
			p.join.Member = ""
		case err != nil:
			time.Sleep(200 * time.Millisecond)
		}
	}
}

func (p *stormer) share(ctx context.Context) error {
	s := group.Sync{Group: "g", Member: p.join.Member, Generation: p.joined.Generation}
	if p.joined.Leader == p.joined.Member {
		s.Assignments = make(map[string][]byte)
		for i := range shares {
			m := p.joined.Members[i%len(p.joined.Members)].Member
			s.Assignments[m] = fmt.Appendf(s.Assignments[m], "%d ", i)
		}
	}
	out, err := p.b.Sync(ctx, s)
	if err == nil {
		p.assigned = string(out.Assignment)
		p.s.got(p)
	}
	return err
}

func (p *stormer) work(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := p.beat(ctx); err != nil {
			return err
		}
		if p.b != p.s.broker() {
			return errors.New("the connection is gone")
		}
		if err := p.commitShares(ctx); err != nil && !errors.Is(err, group.ErrUnavailable) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

// commitShares commits, for every share, the member's generation and a count: it may never go back.
func (p *stormer) commitShares(ctx context.Context) error {
	p.epoch++
	var offsets []group.Committed
	for i := range shares {
		if strings.Contains(" "+p.assigned, fmt.Sprintf(" %d ", i)) {
			tp := group.TopicPartition{Topic: eventlog.TopicID{1}, Partition: int32(i)}
			offsets = append(offsets, group.Committed{TopicPartition: tp, Name: "t", Offset: eventlog.Offset(int64(p.joined.Generation)<<32 + int64(p.epoch))})
		}
	}
	if err := p.commit(ctx, offsets...); err != nil {
		return err
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	for _, o := range offsets {
		if last := p.s.acked[o.Partition]; last >= o.Offset {
			p.s.t.Errorf("share %d: commit %d of generation %d was taken after %d of generation %d", o.Partition, o.Offset, o.Offset>>32, last, last>>32)
		}
		p.s.acked[o.Partition] = o.Offset
	}
	return nil
}

func (s *storm) broker() *broker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b
}

// got notes an assignment, and checks that its generation has no other.
func (s *storm) got(p *stormer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation := p.joined.Generation
	if s.given[generation] == nil {
		s.given[generation] = make(map[string]string)
	}
	s.newest = max(s.newest, generation)
	s.owner[p] = make(map[int32]string)
	for share := range strings.FieldsSeq(p.assigned) {
		if other, ok := s.given[generation][share]; ok && other != p.join.Member {
			s.t.Errorf("generation %d gives share %s to %s and to %s", generation, share, other, p.join.Member)
		}
		s.given[generation][share] = p.join.Member
		var n int32
		fmt.Sscan(share, &n)
		s.owner[p][n] = p.join.Member
	}
}

func (s *storm) lost(p *stormer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.owner, p)
}

// whole reports whether the live members hold every share once.
func (s *storm) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(map[int32]int)
	for _, has := range s.owner {
		for n := range has {
			held[n]++
		}
	}
	for n := range int32(shares) {
		if held[n] != 1 {
			return false
		}
	}
	return len(held) == shares
}

func (s *storm) generation() int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.newest
}

// G4, G5, G8: a generation has one assignment, commits never go back to an older generation, and
// once the storm is over all is shared out again soon, with few rebalances, and stays so.
func TestGroupSurvivesAStorm(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { weather(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func weather(t *testing.T, r *rand.Rand) {
	s := &storm{t: t, store: &faulty{Store: memory.New()}, given: map[int32]map[string]string{}, acked: map[int32]eventlog.Offset{}, owner: map[*stormer]map[int32]string{}}
	s.b = startBroker(t, s.store, group.Config{})
	var living sync.WaitGroup
	var ends []context.CancelFunc
	start := func() {
		ctx, end := context.WithCancel(t.Context())
		ends = append(ends, end)
		p := &stormer{s: s, player: newPlayer(nil, "g", fmt.Sprint("m", len(ends)))}
		p.join.Session, p.join.Rebalance = 6*time.Second, 10*time.Second
		living.Go(func() { p.live(ctx) })
	}
	end := func() { // as kill -9 does
		if len(ends) > 1 {
			i := r.IntN(len(ends))
			ends[i]()
			ends = append(ends[:i], ends[i+1:]...)
		}
	}
	start()
	for range 60 {
		time.Sleep(time.Duration(r.IntN(8000)) * time.Millisecond)
		switch r.IntN(8) {
		case 0, 1, 2:
			start()
		case 3, 4:
			end()
		case 5:
			s.b.stop()
			next := startBroker(t, s.store, group.Config{})
			s.mu.Lock()
			s.b = next
			s.mu.Unlock()
		case 6:
			s.store.fail(eventlog.ErrUnavailable, nil)
			time.Sleep(time.Duration(r.IntN(15)) * time.Second)
			s.store.fail(nil, nil)
		case 7:
			s.store.fail(nil, eventlog.ErrUnsure)
			time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
			s.store.fail(nil, nil)
		}
	}
	// One session for the dead, one rebalance, and a heartbeat; what is left may rebalance once
	// more as members come out of their waits at different times.
	time.Sleep(6*time.Second + 2*10*time.Second + time.Second)
	if !s.whole() {
		t.Error("the storm is over, and the group did not come together")
	}
	before := s.generation()
	start()
	time.Sleep(15 * time.Second)
	if !s.whole() || s.generation() > before+2 {
		t.Errorf("one member came: generation %d became %d, whole: %v", before, s.generation(), s.whole())
	}
	calm := s.generation()
	time.Sleep(5 * time.Minute)
	if s.generation() != calm {
		t.Errorf("nothing happened, and generation %d became %d", calm, s.generation())
	}
	for _, end := range ends {
		end()
	}
	living.Wait()
}
