package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// running is a peer whose Run runs.
type running struct {
	*group.Peer
	stop  func() error // ends Run's context and waits for it: the peer leaves
	ended chan error   // holds what Run returned
}

func joinPeer(t *testing.T, b *broker, cfg group.PeerConfig) *running {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "g"
	}
	if cfg.Topics == nil {
		cfg.Topics = []string{"orders"}
	}
	cfg.Logger = quiet
	p, err := b.JoinPeer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, p)
}

func run(t *testing.T, p *group.Peer) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Peer: p, ended: make(chan error, 1)}
	done := make(chan struct{})
	var err error
	go func() {
		err = p.Run(ctx)
		r.ended <- err
		close(done)
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		<-done
		return err
	})
	t.Cleanup(func() { _ = r.stop() })
	return r
}

// has spells out what a peer has: "orders:0,1 revoking orders:2".
func has(p interface{ Assignment() group.Assignment }) string {
	a := p.Assignment()
	out := spell(a.Own)
	if len(a.Revoking) > 0 {
		out += " revoking " + spell(a.Revoking)
	}
	return out
}

func spell(as []group.Assigned) string {
	var b strings.Builder
	last := ""
	for _, a := range as {
		switch {
		case a.Topic != last && last != "":
			fmt.Fprintf(&b, " %s:%d", a.Topic, a.Partition)
		case a.Topic != last:
			fmt.Fprintf(&b, "%s:%d", a.Topic, a.Partition)
		default:
			fmt.Fprintf(&b, ",%d", a.Partition)
		}
		last = a.Topic
	}
	return b.String()
}

func wantHas(t *testing.T, p interface{ Assignment() group.Assignment }, want string) {
	t.Helper()
	if got := has(p); got != want {
		t.Errorf("the peer has %q, want %q", got, want)
	}
}

// yield does what an application does that has nothing under way: it gives back what is asked for.
func yield(t *testing.T, p *running) {
	t.Helper()
	check(t, p.Release(t.Context(), places(p.Assignment().Revoking)...))
}

// yieldAll lets handovers come to their end.
func yieldAll(t *testing.T, ps ...*running) {
	t.Helper()
	for range 2 {
		for _, p := range ps {
			yield(t, p)
		}
		time.Sleep(2 * time.Second)
	}
}

func places(as []group.Assigned) (tps []group.TopicPartition) {
	for _, a := range as {
		tps = append(tps, a.TopicPartition)
	}
	return tps
}

func publish(t *testing.T, b *broker, p eventlog.Partition, values ...string) {
	t.Helper()
	for _, v := range values {
		_, err := b.log.Publish(t.Context(), p, batch.Record{Value: []byte(v)})
		check(t, err)
	}
}

func TestAPeerAloneHasAllAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 3)
		_, err := b.Commit(t.Context(), simple("g", at(orders[1], 7)))
		check(t, err)
		before := time.Now()
		p, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err)
		wantHas(t, p, "orders:0,1,2")
		if took := time.Since(before); took > 0 {
			t.Errorf("it took %v", took)
		}
		if got := p.Assignment().Own[1].Position; got != 7 {
			t.Errorf("begins at %d, and 7 was committed", got)
		}
		check(t, p.Leave(t.Context()))
	})
}

func TestANewcomerGetsItsShareAsItIsReleased(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 4)
		p := joinPeer(t, b, group.PeerConfig{})
		q := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait() // p was woken
		wantHas(t, q, "")
		wantHas(t, p, "orders:0,1 revoking orders:2,3")
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[2], 5)})) // it finishes what it began
		check(t, p.Release(t.Context(), orders[2].TopicPartition))
		synctest.Wait()
		wantHas(t, p, "orders:0,1 revoking orders:3")
		wantHas(t, q, "orders:2")
		if got := q.Assignment().Own[0].Position; got != 5 {
			t.Errorf("goes on at %d, and 5 was committed", got)
		}
		wantErr(t, p.Commit(t.Context(), []group.Committed{at(orders[2], 6)}), group.ErrFenced)
		yield(t, p)
		synctest.Wait()
		wantHas(t, q, "orders:2,3")
		check(t, q.stop())
		synctest.Wait()
		wantHas(t, p, "orders:0,1,2,3")
	})
}

// In another process nobody wakes anybody: the next look finds it.
func TestPeersOfTwoProcessesFindEachOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 2)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(1200 * time.Millisecond)
		wantHas(t, p, "orders:0 revoking orders:1")
		yield(t, p)
		time.Sleep(1200 * time.Millisecond)
		wantHas(t, q, "orders:1")
		check(t, p.stop())
		time.Sleep(1200 * time.Millisecond)
		wantHas(t, q, "orders:0,1")
	})
}

func TestTheSilentAreTakenOverAfterTheirSession(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		orders := a.topic(t, "orders", 2)
		p, err := a.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err) // it never runs
		q := joinPeer(t, b, group.PeerConfig{})
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 3)}))
		time.Sleep(9 * time.Second)
		wantHas(t, q, "")
		time.Sleep(4100 * time.Millisecond) // the session, and a heartbeat of q's
		wantHas(t, q, "orders:0,1")
		if got := q.Assignment().Own[0].Position; got != 3 {
			t.Errorf("goes on at %d, and 3 was committed", got)
		}
		wantHas(t, p, "")
		wantErr(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 4)}), group.ErrFenced)
		wantErr(t, p.Run(t.Context()), group.ErrFenced)
		wantOffset(t, b, "g", orders[0].TopicPartition, 3)
	})
}

func TestBadPeersAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		long := strings.Repeat("x", 600)
		var invalid *eventlog.InvalidError
		for name, c := range map[string]struct {
			cfg  group.PeerConfig
			want error
		}{
			"no group":         {group.PeerConfig{Topics: []string{"t"}}, group.ErrInvalidGroup},
			"long group":       {group.PeerConfig{Group: long, Topics: []string{"t"}}, group.ErrInvalidGroup},
			"short session":    {group.PeerConfig{Group: "g", Topics: []string{"t"}, Session: time.Millisecond}, group.ErrInvalidSession},
			"long session":     {group.PeerConfig{Group: "g", Topics: []string{"t"}, Session: time.Hour}, group.ErrInvalidSession},
			"seldom heartbeat": {group.PeerConfig{Group: "g", Topics: []string{"t"}, Heartbeat: 5 * time.Second}, group.ErrInvalidSession},
			"no topics":        {group.PeerConfig{Group: "g"}, nil},
			"many topics":      {group.PeerConfig{Group: "g", Topics: strings.Fields(strings.Repeat("t ", 1) + numbers(1001))}, group.ErrTooLarge},
			"long client":      {group.PeerConfig{Group: "g", Topics: []string{"t"}, Client: long}, group.ErrTooLarge},
			"odd client":       {group.PeerConfig{Group: "g", Topics: []string{"t"}, Client: "caf\xe9"}, nil},
			"bad topic":        {group.PeerConfig{Group: "g", Topics: []string{"a/b"}}, nil},
		} {
			p, err := b.JoinPeer(t.Context(), c.cfg)
			if p != nil || err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if (name == "bad topic" || name == "odd client") && !errors.As(err, &invalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		left, err := store.List(t.Context(), "group/", "", 10)
		check(t, err)
		if len(left) > 0 {
			t.Errorf("the refused left %v", left)
		}
	})
}

func numbers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "t%d ", i)
	}
	return b.String()
}

// EventSQL's own test: 50 instances start the same consumer at once, and 50 events are handled once
// each, in order.
func TestFiftyPeersHandleFiftyEventsOnceEachInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		const partitions = 5
		orders := b.topic(t, "orders", partitions)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		w := &work{t: t, b: b, next: map[group.TopicPartition]eventlog.Offset{}}
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		for range 50 {
			all.Go(func() { w.consume(ctx, joinPeer(t, b, group.PeerConfig{})) })
		}
		for i := range 50 {
			publish(t, b, topic.Partitions[i%partitions], fmt.Sprint(i))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		stop()
		all.Wait()
		for _, o := range orders {
			if got := w.next[o.TopicPartition]; got != 50/partitions {
				t.Errorf("partition %d: %d events handled, want %d", o.Partition, got, 50/partitions)
			}
		}
	})
}

// work is an application with many peers, and what came of it.
type work struct {
	t    *testing.T
	b    *broker
	mu   sync.Mutex // guards next
	next map[group.TopicPartition]eventlog.Offset
}

// consume handles what the peer has, one event at a time, until ctx ends, then leaves.
func (w *work) consume(ctx context.Context, p *running) {
	for ctx.Err() == nil {
		a := p.Assignment()
		check(w.t, p.Release(w.t.Context(), places(a.Revoking)...))
		for _, own := range a.Own {
			w.handle(p, own)
		}
		select {
		case <-p.Changed():
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	check(w.t, p.stop())
}

func (w *work) handle(p *running, a group.Assigned) {
	got, err := w.b.log.Fetch(w.t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: a.Log, From: a.Position, MaxBytes: 1}}})
	if err != nil || a.Position >= got[0].Bounds.Next {
		check(w.t, err)
		return
	}
	w.mu.Lock()
	if w.next[a.TopicPartition] != a.Position {
		w.t.Errorf("partition %d: event %d is handled, and it is %d's turn", a.Partition, a.Position, w.next[a.TopicPartition])
	}
	w.next[a.TopicPartition] = a.Position + 1
	w.mu.Unlock()
	check(w.t, p.Commit(w.t.Context(), []group.Committed{{TopicPartition: a.TopicPartition, Offset: a.Position + 1, LeaderEpoch: -1}}))
}

func TestTopicsThatComeGrowAndGo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		a, b := startFollowing(t, store, group.Config{}, 250*time.Millisecond), startFollowing(t, store, group.Config{}, 250*time.Millisecond)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{}) // there is no topic yet
		wantHas(t, p, "")
		orders := a.topic(t, "orders", 2)
		time.Sleep(5 * time.Second)
		yieldAll(t, p, q)
		wantShares(t, 2, p, q)
		_, err := a.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 5})
		check(t, err)
		time.Sleep(5 * time.Second)
		yieldAll(t, p, q)
		wantShares(t, 5, p, q)
		for _, r := range []*running{p, q} {
			for _, own := range r.Assignment().Own {
				check(t, r.Commit(t.Context(), []group.Committed{{TopicPartition: own.TopicPartition, Offset: 9, LeaderEpoch: -1}}))
			}
		}
		check(t, a.log.DeleteTopic(t.Context(), "orders"))
		time.Sleep(5 * time.Second)
		wantShares(t, 0, p, q)
		wantErr(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 10)}), group.ErrFenced)
		a.topic(t, "orders", 4)
		time.Sleep(5 * time.Second)
		yieldAll(t, p, q)
		wantShares(t, 4, p, q)
		for _, r := range []*running{p, q} {
			for _, own := range r.Assignment().Own {
				if own.Position != 0 {
					t.Errorf("another topic of the same name begins at %d", own.Position)
				}
			}
		}
	})
}

// wantShares checks that the peers share out so many partitions, each once, none much more than
// another.
func wantShares(t *testing.T, partitions int, ps ...*running) {
	t.Helper()
	least, most, seen := partitions, 0, map[group.TopicPartition]bool{}
	for _, p := range ps {
		a := p.Assignment()
		least, most = min(least, len(a.Own)), max(most, len(a.Own))
		for _, tp := range places(a.Own) {
			if seen[tp] {
				t.Errorf("two peers have %v", tp)
			}
			seen[tp] = true
		}
		if len(a.Revoking) > 0 {
			t.Errorf("%d are still asked for", len(a.Revoking))
		}
	}
	if len(seen) != partitions || most-least > 1 && partitions > 0 {
		t.Errorf("%d of %d partitions are shared out, %d to %d each", len(seen), partitions, least, most)
	}
}

func TestTheEndIsKeptWhereItWas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 1)
		topic, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		publish(t, b, topic.Partitions[0], "old")
		p := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		if got := p.Assignment().Own[0].Position; got != 1 {
			t.Fatalf("begins at %d, and the end is 1", got)
		}
		publish(t, b, topic.Partitions[0], "new") // p goes before it handles it
		check(t, p.stop())
		q := joinPeer(t, b, group.PeerConfig{FromLatest: true})
		if got := q.Assignment().Own[0].Position; got != 1 {
			t.Fatalf("goes on at %d, and nobody handled 1", got)
		}
	})
}

// The store is away for a minute, for all. Nobody is to blame, and nobody loses anything.
func TestPeersOutliveTheStoresAbsence(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		orders := a.topic(t, "orders", 2)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(2 * time.Second)
		yield(t, p)
		time.Sleep(2 * time.Second)
		hasP, hasQ := has(p), has(q)
		for len(p.Changed()) > 0 {
			<-p.Changed()
		}
		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(5 * time.Second)
		wantHas(t, p, hasP) // nobody can take it over so soon
		time.Sleep(10 * time.Second)
		wantHas(t, p, "") // it cannot know
		if len(p.Changed()) == 0 {
			t.Error("nobody was told that the assignment is empty")
		}
		time.Sleep(time.Minute)
		store.fail(nil, nil)
		time.Sleep(20 * time.Second)
		wantHas(t, p, hasP)
		wantHas(t, q, hasQ)
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[p.Assignment().Own[0].Partition], 1)}))
	})
}

// After the store's absence all are silent, and a newcomer is perhaps the first to be heard. It
// waits for the others.
func TestANewcomerAfterTheStoresAbsenceTakesNobodyForDead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		a, b, c := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 3)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(2 * time.Second)
		yieldAll(t, p, q)
		store.fail(eventlog.ErrUnavailable, nil)
		time.Sleep(time.Minute)
		store.fail(nil, nil)
		n := joinPeer(t, c, group.PeerConfig{})
		time.Sleep(12 * time.Second)
		yieldAll(t, p, q, n)
		wantShares(t, 3, p, q, n)
		for _, r := range []*running{p, q, n} {
			if len(r.ended) > 0 {
				t.Errorf("%s ended: %v", r.ID(), <-r.ended)
			}
		}
	})
}

// Whose predecessor crashed long ago has all soon.
func TestAPeerAloneAfterACrashHasAllSoon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 2)
		_, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err) // it never runs
		time.Sleep(time.Minute)
		q := joinPeer(t, b, group.PeerConfig{})
		wantHas(t, q, "")
		time.Sleep(8*time.Second + time.Millisecond) // half a session, and a heartbeat
		wantHas(t, q, "orders:0,1")
	})
}

// Crashed peers do not keep others out, however many there are.
func TestAGroupFullOfTheDeadIsOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "orders", 2)
		e := eventlog.Entry{}
		for i := range 1999 {
			e.Puts = append(e.Puts, eventlog.Put{Key: fmt.Sprint("group/member/g/a", i), Version: 1, Value: []byte(`{"topics":["orders"],"session_ms":10000}`)})
		}
		_, err := b.log.Append(t.Context(), e)
		check(t, err)
		_, err = b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err) // it makes members of them all, and never runs
		time.Sleep(time.Minute)
		wantHas(t, joinPeer(t, b, group.PeerConfig{}), "orders:0,1")
	})
}

func TestAGroupReadsSoManyPartitionsAndNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		var topics []string
		for i := range 21 {
			topics = append(topics, fmt.Sprint("t", i))
			b.topic(t, topics[i], 10_000)
		}
		_, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: topics, Logger: quiet})
		wantErr(t, err, group.ErrTooLarge)
		if !strings.Contains(err.Error(), "210000") || !strings.Contains(err.Error(), "200000") {
			t.Error(err)
		}
	})
}

func TestPlacesAreInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		b.topic(t, "b", 3)
		b.topic(t, "a", 2)
		p := joinPeer(t, b, group.PeerConfig{Topics: []string{"b", "a", "b"}})
		wantHas(t, p, "a:0,1 b:0,1,2")
		if !slices.IsSortedFunc(p.Assignment().Own, func(x, y group.Assigned) int { return strings.Compare(x.Topic, y.Topic) }) {
			t.Error("not in order")
		}
	})
}

// lateStore answers to a commit that it is unsure, and does it later.
type lateStore struct {
	eventlog.Store
	mu    sync.Mutex // guards what follows
	armed bool
	late  []eventlog.Entry
}

func (s *lateStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.armed {
		s.armed, s.late = false, flush
		return nil, eventlog.ErrUnsure
	}
	return s.Store.Commit(ctx, flush)
}

// A commit whose answer got lost is tried again until it is known to have happened. When the first
// try arrives after all, it must not undo what was committed since.
func TestACommitThatComesLateUndoesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &lateStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait()
		store.armed = true
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 5)}))
		wantOffset(t, b, "g", orders[0].TopicPartition, 5)
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 6)}))
		_, err := store.Store.Commit(t.Context(), store.late)
		check(t, err)
		wantOffset(t, b, "g", orders[0].TopicPartition, 6)
	})
}

// While answers get lost for good, what happened is unknown, and is told so.
func TestACommitOfUnknownOutcomeIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait()
		store.fail(nil, eventlog.ErrUnsure)
		wantErr(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 5)}), eventlog.ErrUnsure)
		store.fail(eventlog.ErrUnavailable, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Commit(ctx, []group.Committed{at(orders[0], 6)})
		wantErr(t, err, group.ErrUnavailable)
		if errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("it certainly did not happen, and the error is %v", err)
		}
		store.fail(nil, nil)
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[0], 6)}))
	})
}

// doubtfulStore keeps a commit and loses the answer, takes the next one, and is away then.
type doubtfulStore struct {
	eventlog.Store
	mu   sync.Mutex // guards step
	step int        // 0: all is well
}

func (s *doubtfulStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.step == 0 {
		return s.Store.Commit(ctx, flush)
	}
	s.step++
	if s.step > 3 {
		return nil, eventlog.ErrUnavailable
	}
	out, err := s.Store.Commit(ctx, flush)
	if s.step == 2 {
		return nil, eventlog.ErrUnsure
	}
	return out, err
}

// What the second try is refused for says nothing about the first.
func TestACommitOfUnknownOutcomeStaysUnknownWhenTheStoreGoesAway(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &doubtfulStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait()
		store.mu.Lock()
		store.step = 1
		store.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := p.Commit(ctx, []group.Committed{at(orders[0], 5)})
		store.mu.Lock()
		store.step = 0
		store.mu.Unlock()
		wantErr(t, err, eventlog.ErrUnsure)
		wantOffset(t, b, "g", orders[0].TopicPartition, 5)
	})
}

// Idle peers cost what Run says: fewer than two trips a second each.
func TestIdlePeersCostFewTrips(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		counted := &countingStore{Store: memory.New()}
		b := startBroker(t, counted, group.Config{})
		b.topic(t, "orders", 10)
		const peers = 10
		for range peers {
			joinPeer(t, b, group.PeerConfig{})
		}
		time.Sleep(10 * time.Second)
		counted.commits.Store(0)
		counted.lists.Store(0)
		time.Sleep(time.Minute)
		if c, l := counted.commits.Load(), counted.lists.Load(); c+l > peers*2*60 || l < peers*60 {
			t.Errorf("a minute of %d idle peers took %d commits and %d lists", peers, c, l)
		}
	})
}

// meetingStore lets two read the state of the group before either writes it.
type meetingStore struct {
	eventlog.Store
	mu      sync.Mutex // guards what follows
	armed   bool
	waiting chan struct{}
	stale   int
}

func (s *meetingStore) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	s.mu.Lock()
	if !s.armed || !strings.HasPrefix(prefix, "group/state/") {
		s.mu.Unlock()
		return kvs, err
	}
	if s.waiting == nil {
		s.waiting = make(chan struct{})
		s.mu.Unlock()
		<-s.waiting
		return kvs, err
	}
	s.armed = false
	close(s.waiting)
	s.mu.Unlock()
	return kvs, err
}

func (s *meetingStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range out {
		if errors.Is(o.Err, eventlog.ErrStale) {
			s.stale++
		}
	}
	return out, err
}

func TestOfTwoWhoAssignAtOnceOneWins(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &meetingStore{Store: memory.New()}
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 2)
		_, err := b.log.Topic(t.Context(), "orders")
		check(t, err)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(2 * time.Second)
		yieldAll(t, p, q)
		before := p.Generation()
		_, err = a.log.ChangeTopic(t.Context(), "orders", eventlog.TopicChange{Partitions: 4})
		check(t, err)
		check(t, b.log.RefreshTopics(t.Context()))
		store.mu.Lock()
		store.armed = true
		store.mu.Unlock()
		time.Sleep(5 * time.Second)
		store.mu.Lock()
		defer store.mu.Unlock()
		// Nearly always one is refused; at times the other has looked by then and has nothing to
		// write.
		if store.stale > 1 || p.Generation() != before+1 || q.Generation() != before+1 {
			t.Errorf("%d were refused, and generation %d became %d and %d", store.stale, before, p.Generation(), q.Generation())
		}
		wantShares(t, 4, p, q)
	})
}

func TestAGroupHasSoManyPeersAndNoMore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 1)
		const most = 2000
		e := eventlog.Entry{}
		for i := range most - 1 {
			e.Puts = append(e.Puts, eventlog.Put{Key: fmt.Sprint("group/member/g/a", i), Version: 1, Value: []byte(`{"topics":["orders"],"session_ms":1800000}`)})
		}
		_, err := b.log.Append(t.Context(), e)
		check(t, err)
		joinPeer(t, b, group.PeerConfig{})
		_, err = b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		wantErr(t, err, group.ErrFull)
		signs, err := store.List(t.Context(), "group/member/", "", 3000)
		check(t, err)
		if len(signs) != most {
			t.Errorf("%d signs of life, and the refused one left with its own", len(signs))
		}
	})
}

// A join that fails half way leaves nothing that another would wait for.
func TestAJoinThatFailsLeavesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &faulty{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 1)
		cfg := group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet}
		store.fail(eventlog.ErrUnavailable, nil)
		_, err := b.JoinPeer(t.Context(), cfg)
		wantErr(t, err, group.ErrUnavailable)
		store.fail(nil, eventlog.ErrUnsure)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		p, err := b.JoinPeer(ctx, cfg) // every answer is lost, and all of it happened
		check(t, err)
		store.fail(nil, nil)
		wantHas(t, p, "orders:0")
		check(t, p.Leave(t.Context()))
		check(t, p.Leave(t.Context()))
		signs, err := store.List(t.Context(), "group/member/", "", 10)
		check(t, err)
		if len(signs) > 0 {
			t.Errorf("left behind: %v", signs)
		}
	})
}
