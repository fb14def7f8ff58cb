package group_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// stuckStore keeps commits waiting, and commits them when it is told to.
type stuckStore struct {
	eventlog.Store
	goes chan struct{} // closed: commits go on
}

func (s *stuckStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	<-s.goes
	return s.Store.Commit(context.WithoutCancel(ctx), flush)
}

// losingStore loses a commit when it is told to, and is away from then on until it is told to go
// on.
type losingStore struct {
	eventlog.Store
	mu   sync.Mutex // guards what follows
	step int        // 0: all is well; 1: the next commit is lost; 2: it is away
	late []eventlog.Entry
}

func (s *losingStore) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.step {
	case 0:
		return s.Store.Commit(ctx, flush)
	case 1:
		s.step, s.late = 2, flush
		return nil, eventlog.ErrUnsure
	}
	return nil, eventlog.ErrUnavailable
}

func (s *losingStore) set(step int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.step = step
}

func commitWith(ctx context.Context, p *running, c group.Committed, mark string) error {
	c.Metadata = mark
	return p.CommitWith(ctx, []group.Committed{c}, func(context.Context, *eventlog.Entry) error { return nil })
}

// A peer has a commit of unknown outcome when its session ends, and gets its partition again. By
// then the commit has happened: whoever handles the partition goes on behind it.
func TestAPartitionThatComesBackIsWhereItsLastCommitPutIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &stuckStore{Store: memory.New(), goes: make(chan struct{})}
		close(store.goes)
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait()
		check(t, commitWith(t.Context(), p, at(orders[0], 5), "first"))
		store.goes = make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, commitWith(ctx, p, at(orders[0], 6), "second"), eventlog.ErrUnsure)
		time.Sleep(15 * time.Second)
		wantHas(t, p, "")
		close(store.goes)
		time.Sleep(10 * time.Second)
		wantHas(t, p, "orders:0")
		if is := p.Assignment().Own[0].Position; is != 6 {
			t.Errorf("the partition is at %d, and 6 is committed", is)
		}
	})
}

// As above, but the commit comes when the partition has been given again: it is refused, as whoever
// handles the partition did not know of it.
func TestACommitThatComesWhenItsPartitionWasGivenAgainIsRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := &losingStore{Store: memory.New()}
		b := startBroker(t, store, group.Config{})
		orders := b.topic(t, "orders", 1)
		p := joinPeer(t, b, group.PeerConfig{})
		synctest.Wait()
		check(t, commitWith(t.Context(), p, at(orders[0], 5), "first"))
		store.set(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantErr(t, commitWith(ctx, p, at(orders[0], 6), "second"), eventlog.ErrUnsure)
		time.Sleep(15 * time.Second)
		wantHas(t, p, "")
		store.set(0)
		time.Sleep(10 * time.Second)
		wantHas(t, p, "orders:0")
		if is := p.Assignment().Own[0].Position; is != 5 {
			t.Errorf("the partition is at %d, and 5 is committed", is)
		}
		_, err := store.Store.Commit(t.Context(), store.late)
		check(t, err)
		wantOffset(t, b, "g", orders[0].TopicPartition, 5)
	})
}
