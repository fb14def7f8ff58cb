package group_test

import (
	"context"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// behind is a store whose clock was set back: no key ages.
type behind struct{ eventlog.Store }

func (s behind) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		kvs[i].Age = 0
	}
	return kvs, err
}

// The store's clock is set back, and a process dies. The others see that its peers' keys stay as they are; those of the living do not.
func TestTheSilentAreTakenOverWhileTheClockIsBehind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := behind{memory.New()}
		a, b := startBroker(t, store, group.Config{}), startBroker(t, store, group.Config{})
		a.topic(t, "orders", 3)
		_, err := a.JoinPeer(t.Context(), group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet})
		check(t, err) // it never runs
		q, r := joinPeer(t, b, group.PeerConfig{}), joinPeer(t, b, group.PeerConfig{})
		time.Sleep(9 * time.Second)
		wantHas(t, q, "")
		time.Sleep(8 * time.Second) // the session, and two heartbeats
		for range 10 {
			if mine, others := len(q.Assignment().Own), len(r.Assignment().Own); mine+others != 3 || mine == 0 || others == 0 {
				t.Errorf("the living have %d and %d partitions of 3", mine, others)
			}
			time.Sleep(5 * time.Second)
		}
	})
}
