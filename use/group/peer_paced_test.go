package group_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// pacedStore takes a commit once in a while, as a bucket with a linger does.
type pacedStore struct {
	eventlog.Store
	every time.Duration
	mu    sync.Mutex // guards next
	next  time.Time
}

func (s *pacedStore) HeartbeatEvery() time.Duration { return s.every }
func (s *pacedStore) CommitEvery() time.Duration    { return s.every }
func (s *pacedStore) FlushBytes() int               { return 0 }

func (s *pacedStore) NextCommit() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next
}

func (s *pacedStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	time.Sleep(time.Until(s.NextCommit()))
	s.mu.Lock()
	s.next = time.Now().Add(s.every)
	s.mu.Unlock()
	return s.Store.Commit(ctx, flush)
}

// keepTheirs checks for three minutes that the members have what they have now.
func keepTheirs(t *testing.T, p, q *running) {
	t.Helper()
	hasP, hasQ := has(p), has(q)
	for second := range 180 {
		time.Sleep(time.Second)
		if has(p) != hasP || has(q) != hasQ {
			t.Fatalf("after %d s they have %q and %q, and had %q and %q", second+1, has(p), has(q), hasP, hasQ)
		}
	}
}

// A commit takes longer than the time between two heartbeats. No heartbeat on its way is given up
// for the next one, which would take as long.
func TestMembersKeepTheirPartitionsWhileCommitsAreSlow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &stallingStore{Store: memory.New()}
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 2)
		p, q := joinPeer(t, a, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(3 * time.Second)
		yield(t, p)
		time.Sleep(3 * time.Second)
		wantShares(t, 2, p, q)
		store.by.Store(int64(4 * time.Second))
		keepTheirs(t, p, q)
	})
}

// The store takes a commit seldom, and with it a heartbeat. The members there have sessions long
// enough for that, by which those judge them, too, who can write more often.
func TestSessionsAreLongEnoughForAStoreThatTakesACommitSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		seldom, often := startBroker(t, &pacedStore{Store: store, every: 6 * time.Second}, group.Config{}), startBroker(t, store, group.Config{})
		seldom.topic(t, "orders", 2)
		p, q := joinPeer(t, seldom, group.PeerConfig{}), joinPeer(t, often, group.PeerConfig{})
		time.Sleep(15 * time.Second)
		yield(t, p)
		time.Sleep(15 * time.Second)
		wantShares(t, 2, p, q)
		keepTheirs(t, p, q)
		sessions := ""
		check(t, often.log.ListAll(t.Context(), "group/member/g/", func(kv eventlog.KeyValue) error {
			sessions += string(kv.Value)
			return nil
		}))
		for _, session := range []string{`"session_ms":30000`, `"session_ms":10000`} {
			if strings.Count(sessions, session) != 1 {
				t.Errorf("the heartbeats are %s, want one with %s", sessions, session)
			}
		}
	})
}

// A store that takes a commit every twelve seconds serves members of Kafka's new protocol as well:
// no write of theirs is given up before its turn, and none of them loses what it has.
func TestKafkaMembersStayOnAStoreThatTakesACommitSeldom(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		seldom := startBroker(t, &pacedStore{Store: store, every: 12 * time.Second}, group.Config{})
		often := startBroker(t, store, group.Config{})
		often.topic(t, "orders", 2)
		one, two := &kafkaMember{b: seldom, id: "one"}, &kafkaMember{b: often, id: "two"}
		check(t, one.beat(t.Context()))
		check(t, two.beat(t.Context()))
		for range 12 {
			check(t, one.beat(t.Context()))
			check(t, two.beat(t.Context()))
			time.Sleep(5 * time.Second)
		}
		for minute := range 3 {
			if len(one.has) != 1 || len(two.has) != 1 {
				t.Fatalf("in minute %d one has %v and two has %v, want one partition each", minute, one.has, two.has)
			}
			_, err := seldom.Commit(t.Context(), group.Commit{Group: "g", Member: one.id, Generation: one.epoch, Offsets: []group.Committed{{TopicPartition: one.has[0], Offset: 0}}})
			check(t, err)
			for range 12 {
				check(t, one.beat(t.Context()))
				check(t, two.beat(t.Context()))
				time.Sleep(5 * time.Second)
			}
		}
	})
}
