package group_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// peerStorm is a group of peers that come, go, die, stop for a while and lose the store, each in a
// process of its own.
type peerStorm struct {
	t     *testing.T
	r     *rand.Rand
	store eventlog.Store
	calm  bool // nobody dies or stops: then each event is handled once
	all   []*peerProcess

	mu      sync.Mutex // guards what follows
	acked   map[group.TopicPartition]eventlog.Offset
	handled int
}

// peerProcess is a process with one peer at a time: it joins again when it was taken for dead, as
// an application does.
type peerProcess struct {
	s     *peerStorm
	name  string
	log   *eventlog.Log
	store *faulty // what this process sees of the store
	end   func()  // the process ends, in good order
	gone  bool

	mu   sync.Mutex // guards peer
	peer *group.Peer
}

func (s *peerStorm) start() {
	p := &peerProcess{s: s, name: fmt.Sprint("p", len(s.all)), store: &faulty{Store: s.store}}
	log, err := eventlog.Open(s.t.Context(), p.store, eventlog.Config{Poll: 5 * time.Second, Logger: quiet})
	if err != nil {
		s.t.Fatal(err)
	}
	p.log = log
	inLog, stopLog := context.WithCancel(context.Background())
	living, die := context.WithCancel(context.Background())
	var logs, lives sync.WaitGroup
	logs.Go(func() { check(s.t, log.Run(inLog)) })
	lives.Go(func() { p.live(living) })
	p.end = sync.OnceFunc(func() {
		p.gone = true
		die()
		lives.Wait()
		stopLog()
		logs.Wait()
	})
	s.all = append(s.all, p)
}

// alive lists the processes that have not ended.
func (s *peerStorm) alive() (ps []*peerProcess) {
	for _, p := range s.all {
		if !p.gone {
			ps = append(ps, p)
		}
	}
	return ps
}

func (p *peerProcess) live(ctx context.Context) {
	cfg := group.PeerConfig{Group: "g", Topics: []string{"orders"}, Client: p.name, Logger: quiet}
	for ctx.Err() == nil {
		peer, err := group.New(p.log, group.Config{}).JoinPeer(ctx, cfg)
		if err != nil {
			select {
			case <-time.After(300 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		p.mu.Lock()
		p.peer = peer
		p.mu.Unlock()
		over := make(chan error, 1)
		running, stop := context.WithCancel(context.Background())
		go func() { over <- peer.Run(running) }()
		err = p.work(ctx, peer, over)
		stop()
		if err == nil {
			err = <-over
		}
		if err != nil && !errors.Is(err, group.ErrFenced) {
			p.s.t.Errorf("%s: %v", p.name, err)
		}
	}
}

// work handles one event of each partition every now and then, until ctx or the peer ends.
func (p *peerProcess) work(ctx context.Context, peer *group.Peer, over chan error) error {
	for {
		a := peer.Assignment()
		for _, own := range append(a.Own, a.Revoking...) {
			p.handle(peer, own.TopicPartition)
		}
		if err := peer.Release(ctx, places(a.Revoking)...); err != nil && p.s.calm && ctx.Err() == nil {
			p.s.t.Errorf("release: %v", err)
		}
		select {
		case err := <-over:
			return err
		case <-ctx.Done():
			return nil
		case <-time.After(400 * time.Millisecond):
		}
	}
}

// handle is the next event of a partition, if the peer still has it: the event must not be one that
// was committed, and its commit must not be an older one.
func (p *peerProcess) handle(peer *group.Peer, tp group.TopicPartition) {
	s := p.s
	s.mu.Lock()
	now := peer.Assignment()
	has := append(now.Own, now.Revoking...)
	i := slices.Index(places(has), tp)
	if i < 0 {
		s.mu.Unlock()
		return
	}
	a := has[i]
	if a.Position < s.acked[tp] || s.calm && a.Position != s.acked[tp] {
		s.t.Errorf("%s handles event %d of %d, and %d were committed", p.name, a.Position, tp.Partition, s.acked[tp])
	}
	s.handled++
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := peer.Commit(ctx, []group.Committed{{TopicPartition: tp, Offset: a.Position + 1, LeaderEpoch: -1}})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil && a.Position+1 < s.acked[tp]:
		s.t.Errorf("%s committed %d of %d after %d", p.name, a.Position+1, tp.Partition, s.acked[tp])
	case err == nil:
		s.acked[tp] = a.Position + 1
	case s.calm && !errors.Is(err, group.ErrFenced):
		s.t.Errorf("commit: %v", err)
	}
}

func (p *peerProcess) generation() int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.peer.Generation()
}

func (s *peerStorm) end() {
	for _, p := range s.all {
		p.end()
	}
}

// look checks that nobody believes to have what another has.
func (s *peerStorm) look() (shares []int, total int) {
	synctest.Wait()
	owner := make(map[group.TopicPartition]string)
	for _, p := range s.all {
		p.mu.Lock()
		peer := p.peer
		p.mu.Unlock()
		if peer == nil {
			continue
		}
		a := peer.Assignment()
		for _, tp := range places(append(a.Own, a.Revoking...)) {
			if owner[tp] != "" {
				s.t.Errorf("%s and %s both have partition %d", owner[tp], p.name, tp.Partition)
			}
			owner[tp] = p.name
		}
		if !p.gone {
			shares = append(shares, len(a.Own))
		}
	}
	return shares, len(owner)
}

func (s *peerStorm) weather() {
	ps := s.alive()
	someone := ps[s.r.IntN(len(ps))]
	switch n := s.r.IntN(10); {
	case n < 3 && len(ps) < 12:
		s.start()
	case n < 5 && len(ps) > 1:
		someone.end()
	case s.calm:
	case n == 5: // stopped, or cut off, for a while
		someone.store.fail(eventlog.ErrUnavailable, nil)
	case n == 6: // the answers get lost
		someone.store.fail(nil, eventlog.ErrUnsure)
	case n == 7: // killed, or cut off for good
		someone.store.fail(eventlog.ErrUnavailable, nil)
		someone.gone = true
		s.start()
	case n == 8: // the store is away, for all
		for _, p := range ps {
			p.store.fail(eventlog.ErrUnavailable, nil)
		}
	default:
		for _, p := range ps {
			p.store.fail(nil, nil)
		}
	}
}

func TestPeersSurviveAStorm(t *testing.T) {
	for _, calm := range []bool{true, false, false} {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed, " calm ", calm), func(t *testing.T) {
			inBubble(t, func(t *testing.T) { stormOfPeers(t, rand.New(rand.NewPCG(seed, 0)), calm) })
		})
	}
}

func stormOfPeers(t *testing.T, r *rand.Rand, calm bool) {
	const partitions = 12
	store := memory.New()
	b := startBroker(t, store, group.Config{}.With(group.Limits{ExpireEvery: 7 * time.Second})) // its sweeps must not disturb
	b.topic(t, "orders", partitions)
	s := &peerStorm{t: t, r: r, store: store, calm: calm, acked: map[group.TopicPartition]eventlog.Offset{}}
	defer s.end()
	s.start()
	for range 50 {
		s.weather()
		for range 4 {
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			s.look()
		}
	}
	for _, p := range s.alive() {
		p.store.fail(nil, nil)
	}
	// A session for the dead, one more for those that come back, and some looks for the handovers.
	time.Sleep(40 * time.Second)
	shares, total := s.look()
	least, most := partitions, 0
	for _, n := range shares {
		least, most = min(least, n), max(most, n)
	}
	if total != partitions || most-least > 1 {
		t.Errorf("the storm is over, and %d of %d partitions are shared out: %v", total, partitions, shares)
	}
	generation := s.alive()[0].generation()
	time.Sleep(5 * time.Minute)
	s.look()
	if now := s.alive()[0].generation(); now != generation {
		t.Errorf("nothing happened, and generation %d became %d", generation, now)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handled < 10*partitions {
		t.Errorf("%d events were handled in all that time", s.handled)
	}
}
