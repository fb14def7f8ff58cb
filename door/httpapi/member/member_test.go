package member_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/door/httpapi/member"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/apikey"
	"github.com/weir-log/weir/use/group"
)

const session = time.Hour

// joined returns members, and one that joined group g, in a log with the topic "orders". ended
// counts members that were uncounted.
func joined(t *testing.T, cfg member.Config) (ms *member.Members, m *member.Member, ended *atomic.Int32) {
	t.Helper()
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan error)
	go func() { running <- log.Run(ctx) }()
	if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	ended = new(atomic.Int32)
	cfg.End = func(member.Caller) { ended.Add(1) }
	cfg.CheckEvery, cfg.StoreTimeout, cfg.Logger = time.Second, time.Second, slog.New(slog.DiscardHandler)
	ms = member.New(cfg)
	peer, err := group.New(log, group.Config{Logger: cfg.Logger}).JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: cfg.Logger})
	if err != nil {
		t.Fatal(err)
	}
	m = &member.Member{Peer: peer, Group: "g", Topics: []string{"orders"}, Session: session}
	if !ms.Add(m, new(apikey.Identity)) {
		t.Fatal("it was not added")
	}
	t.Cleanup(func() {
		ms.Close()
		cancel()
		if err := <-running; err != nil {
			t.Error(err)
		}
	})
	return ms, m, ended
}

func valid(err error) func(context.Context, member.Caller) error {
	return func(context.Context, member.Caller) error { return err }
}

// While keys cannot be read, everybody stays.
func TestAMemberLeavesWhenItsKeyIsNoLongerValid(t *testing.T) {
	for err, stays := range map[error]bool{nil: true, fmt.Errorf("%w: gone", eventlog.ErrUnavailable): true, apikey.ErrUnknown: false, apikey.ErrExpired: false} {
		synctest.Test(t, func(t *testing.T) {
			ms, m, ended := joined(t, member.Config{Valid: valid(err)})
			time.Sleep(2 * time.Second) // fake time: two checks
			synctest.Wait()
			found, done := ms.Enter("g", m.Peer.ID())
			if (found == m) != stays || (ended.Load() == 0) != stays {
				t.Errorf("the key is judged %v: found %v, uncounted %d times", err, found, ended.Load())
			}
			if found != nil {
				done()
			}
		})
	}
}

func TestAMemberStaysWhileItsClientAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ms, m, ended := joined(t, member.Config{Valid: valid(nil)})
		if found, _ := ms.Enter("another", m.Peer.ID()); found != nil {
			t.Error("it was found in another group")
		}
		_, done := ms.Enter("g", m.Peer.ID())
		time.Sleep(2 * session) // the request takes so long
		synctest.Wait()
		if ended.Load() != 0 {
			t.Error("it was removed during a request of its client")
		}
		done()
		time.Sleep(session - time.Second)
		_, done = ms.Enter("g", m.Peer.ID())
		done()
		time.Sleep(session - time.Second)
		synctest.Wait()
		if ended.Load() != 0 {
			t.Error("it was removed before its session was over")
		}
		time.Sleep(2 * time.Second)
		<-m.Gone()
		if found, _ := ms.Enter("g", m.Peer.ID()); found != nil || ended.Load() != 1 {
			t.Errorf("after its session it is found: %v, uncounted %d times", found, ended.Load())
		}
	})
}

func TestOnlyWhatAMemberOwnsIsDelivered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m, _ := joined(t, member.Config{Valid: valid(nil)})
		synctest.Wait()
		own := m.Peer.Assignment().Own
		if len(own) != 2 {
			t.Fatalf("it owns %v", own)
		}
		former := own[1]
		former.Since--
		if got := fmt.Sprint(m.Deliver([]member.Delivery{{Assigned: own[0], Events: true}, {Assigned: former, Events: true}})); got != "[true false]" {
			t.Errorf("of a partition that it owns, and one that it owned before: %s", got)
		}
		renamed := own[0]
		renamed.TopicPartition.Topic[0]++
		if !m.Means(own[0]) || m.Means(renamed) || !m.Means(own[1]) {
			t.Errorf("by a name it means %t, %t, %t", m.Means(own[0]), m.Means(renamed), m.Means(own[1]))
		}
	})
}
