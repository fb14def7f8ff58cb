package group_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/everystore"
	"github.com/weir-log/weir/internal/simbucket"
	"github.com/weir-log/weir/use/group"

	_ "github.com/weir-log/weir/store/s3" // sets simbucket.OpenStore
)

// counter counts all calls of a store.
type counter struct {
	eventlog.Store
	calls        atomic.Int64
	looks, beats chan struct{} // receive when the group g is read or written, and when its host puts its heartbeat
}

func newCounter(store eventlog.Store) *counter {
	return &counter{Store: store, looks: make(chan struct{}, 1), beats: make(chan struct{}, 1)}
}

func (s *counter) count(keys ...string) {
	s.calls.Add(1)
	for _, key := range keys {
		var heard chan struct{}
		switch {
		case key == group.StateKey("g"):
			heard = s.looks
		case strings.HasPrefix(key, "group/member/g/host-"):
			heard = s.beats
		}
		select {
		case heard <- struct{}{}:
		default:
		}
	}
}

func (s *counter) Unwrap() eventlog.Store { return s.Store }

func (s *counter) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	var keys []string
	for _, e := range flush {
		for _, p := range e.Puts {
			keys = append(keys, p.Key)
		}
	}
	s.count(keys...)
	return s.Store.Commit(ctx, flush)
}

func (s *counter) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.count()
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *counter) Changes(ctx context.Context, since eventlog.Mark) ([]eventlog.Bounds, eventlog.Mark, error) {
	s.count()
	return s.Store.Changes(ctx, since)
}

func (s *counter) Seek(ctx context.Context, goals []eventlog.Goal) ([]eventlog.Found, error) {
	s.count()
	return s.Store.Seek(ctx, goals)
}

func (s *counter) Trim(ctx context.Context, trims []eventlog.Trim) ([]error, error) {
	s.count()
	return s.Store.Trim(ctx, trims)
}

func (s *counter) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.count(prefix)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *counter) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.count(keys...)
	return s.Store.Get(ctx, keys, maxBytes)
}

// costOfIdleMembers lets the members of one process share a topic, calls begin when each has its
// partition, and returns how long they sent heartbeats from then on, one after the other, and how
// many store calls that cost.
func costOfIdleMembers(t *testing.T, counted *counter, begin func()) (calls int64, took time.Duration) {
	b := startBroker(t, counted, group.Config{})
	b.topic(t, "orders", idleMembers)
	var all []*kafkaMember
	for n := range idleMembers {
		all = append(all, &kafkaMember{b: b, id: fmt.Sprint("m", n)})
	}
	beatAll := func() (shared bool) {
		var running sync.WaitGroup
		for _, m := range all {
			running.Go(func() { check(t, patiently(t, func() error { return m.beat(t.Context()) })) })
		}
		running.Wait()
		return !slices.ContainsFunc(all, func(m *kafkaMember) bool { return len(m.has) != 1 })
	}
	for round := 0; !beatAll(); <-counted.looks {
		if round++; round == 60 || t.Failed() {
			t.Fatal("after a minute the members do not have one partition each")
		}
	}
	<-counted.beats // this one may be an old one
	<-counted.beats
	begin()
	before, began := counted.calls.Load(), time.Now()
	for range 4 {
		for _, m := range all {
			check(t, m.beat(t.Context()))
		}
		<-counted.beats
	}
	return counted.calls.Load() - before, time.Since(began)
}

func TestIdleConsumersCostEveryStoreTwoCallsASecond(t *testing.T) {
	everystore.Run(t, func(t *testing.T, open func(*testing.T) eventlog.Store) {
		t.Parallel() // it takes half a minute, in which little happens
		if calls, took := costOfIdleMembers(t, newCounter(open(t)), func() {}); float64(calls) > 2*took.Seconds() {
			t.Errorf("in %v %d members cost %d store calls", took, idleMembers, calls)
		}
	})
}

// puts counts the PUTs to a bucket, which cost most.
type puts struct {
	simbucket.Memory
	n atomic.Int64
}

func (b *puts) Put(ctx context.Context, key string, body []byte) (time.Time, error) {
	b.n.Add(1)
	return b.Memory.Put(ctx, key, body)
}

func TestIdleConsumersCostS3FewPuts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		bucket := new(puts)
		s, err := simbucket.OpenStore(t.Context(), "s3://bucket/weir", bucket, simbucket.Tuning{}, quiet)
		store := newCounter(opened(t, s, err))
		calls, took := costOfIdleMembers(t, store, func() { bucket.n.Store(0) })
		if n := bucket.n.Load(); n == 0 || float64(n) > 0.3*took.Seconds() || float64(calls) > 2*took.Seconds() {
			t.Errorf("in %v %d members cost %d PUTs and %d store calls", took, idleMembers, n, calls)
		}
	})
}
