package group_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// tardyStore answers the next commit late, once it is armed. It makes the commit at once.
type tardyStore struct {
	eventlog.Store
	late atomic.Int64 // how late
}

func (s *tardyStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	out, err := s.Store.Commit(ctx, flush)
	time.Sleep(time.Duration(s.late.Swap(0)))
	return out, err
}

// A heartbeat is stored within the session, and its answer comes after it. Whoever was told that
// the assignment is empty is told that it is not any more.
func TestAnAssignmentThatComesBackWithALateAnswerIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &tardyStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 2)
		p := joinPeer(t, b, group.PeerConfig{Heartbeat: 2 * time.Second, Session: 9 * time.Second})
		told := make(chan string, 100)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() {
			for {
				select {
				case <-p.Changed():
					told <- has(p)
				case <-ctx.Done():
					return
				}
			}
		}()
		time.Sleep(5 * time.Second)
		store.late.Store(int64(7500 * time.Millisecond)) // that of the heartbeat at 6 s, after one at 4 s
		time.Sleep(8200 * time.Millisecond)
		synctest.Wait()
		last := ""
		for len(told) > 0 {
			last = <-told
		}
		if last != "" || has(p) != "" {
			t.Fatalf("after the session the peer has %q, and was told of %q: the test tests nothing", has(p), last)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		wantHas(t, p, "orders:0,1")
		for len(told) > 0 {
			last = <-told
		}
		if last != has(p) {
			t.Errorf("the peer has %q, and was told of %q last", has(p), last)
		}
	})
}

// seldomStore lets no commit begin before a time.
type seldomStore struct {
	eventlog.Store
	next atomic.Pointer[time.Time]
}

func (s *seldomStore) HeartbeatEvery() time.Duration { return 0 }
func (s *seldomStore) CommitEvery() time.Duration    { return 0 }
func (s *seldomStore) FlushBytes() int               { return 0 }
func (s *seldomStore) NextCommit() time.Time         { return *s.next.Load() }

// A peer leaves while the store lets no commit begin, and does not wait that long. It has left when
// the store lets one begin, not when its session ends.
func TestAPeerThatDoesNotWaitForItsLeaveLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &seldomStore{Store: memory.New()}
		store.next.Store(new(time.Time))
		b := startBroker(t, store, group.Config{})
		b.topic(t, "orders", 2)
		q := joinPeer(t, startBroker(t, store.Store, group.Config{}), group.PeerConfig{})
		p, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Session: time.Minute, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // q looks
		wantHas(t, q, "orders:0 revoking orders:1")
		next := time.Now().Add(5 * time.Second)
		store.next.Store(&next)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Leave(ctx); !errors.Is(err, eventlog.ErrUnsure) {
			t.Errorf("who did not wait was told %v, want ErrUnsure", err)
		}
		time.Sleep(time.Until(next) + 2*time.Second) // q looks
		wantHas(t, q, "orders:0,1")
	})
}
