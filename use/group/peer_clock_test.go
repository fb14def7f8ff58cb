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

func (s behind) Get(ctx context.Context, keys []string, most int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.Get(ctx, keys, most)
	for i := range kvs {
		kvs[i].Age = 0
	}
	return kvs, err
}

// The store's clock is set back, and a process dies with all members of a group. Another one finds
// that out by looking now and then, and lets the group be reset and deleted; not before.
func TestAGroupWithoutLivingMembersIsNotHeldWhileTheClockIsBehind(t *testing.T) {
	for name, join := range map[string]func(*testing.T, *broker, group.Committed){
		"peers": func(t *testing.T, b *broker, o group.Committed) {
			cfg := group.PeerConfig{Group: "g", Topics: []string{"orders"}, Logger: quiet}
			p, err := b.JoinPeer(t.Context(), cfg) // it never runs
			check(t, err)
			check(t, p.Commit(t.Context(), []group.Committed{o}))
		},
		"members of a coordinator": func(t *testing.T, b *broker, o group.Committed) {
			check(t, reader(t, b).commit(t.Context(), o))
			b.stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				store := behind{memory.New()}
				a := startBroker(t, store, group.Config{})
				b := startFollowing(t, store, group.Config{}, time.Second)
				o := at(a.topic(t, "orders", 1)[0], 3)
				join(t, a, o)
				time.Sleep(2 * time.Second)
				wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotEmpty)
				time.Sleep(time.Second)
				wantErr(t, b.Delete(t.Context(), "g"), group.ErrNotEmpty)
				time.Sleep(30 * time.Minute)
				listed, err := b.List(t.Context(), nil)
				check(t, err)
				if len(listed) != 1 || listed[0].State != group.Empty {
					t.Errorf("listed %+v, want g, empty", listed)
				}
				commit(t, b, "g", at(o, 1))
				check(t, b.Delete(t.Context(), "g"))
			})
		})
	}
}

// The store's clock is set back, and a process dies. The others see that its peers' keys stay as
// they are; those of the living do not.
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
