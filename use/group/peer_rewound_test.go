package group_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// A store that was rewound has the last commits no more, or a transaction that said that it had
// committed a position. A peer begins those partitions again at what is left, and goes on in the
// others.
func TestAPeerBeginsAgainWhereTheStoreLostItsPosition(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := memory.New()
		b := startFollowing(t, store, group.Config{}, time.Second)
		b.topic(t, "orders", 3)
		p := joinPeer(t, b, group.PeerConfig{Topics: []string{"orders"}})
		time.Sleep(time.Second)
		before := p.Assignment().Own
		if len(before) != 3 {
			t.Fatalf("%+v", before)
		}
		commit := func(a group.Assigned, next eventlog.Offset) error {
			return p.Commit(t.Context(), []group.Committed{{TopicPartition: a.TopicPartition, Offset: next, LeaderEpoch: -1, Since: a.Since}})
		}
		for _, a := range before {
			check(t, commit(a, 1))
		}
		restore := store.Backup()
		check(t, commit(before[0], 3))
		p.Claimed(before[1].TopicPartition, before[1].Since, 2)
		restore(false)
		for i, lost := range []bool{true, true, false} {
			if err := commit(before[i], 4); errors.Is(err, group.ErrFenced) != lost || err == nil && lost {
				t.Errorf("partition %d: a commit that goes on from what is lost: %v", i, err)
			}
		}
		time.Sleep(2 * time.Second)
		for i, a := range p.Assignment().Own {
			if lost, again := i < 2, a.Since != before[i].Since; lost != again {
				t.Errorf("partition %d: %+v, before %+v", i, a, before[i])
			}
			if want := [...]eventlog.Offset{1, 1, 4}[i]; a.Position != want {
				t.Errorf("partition %d begins at %d, not %d", i, a.Position, want)
			}
			check(t, commit(a, 5))
		}
	})
}
