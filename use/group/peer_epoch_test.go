package group_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// beginEpoch lets the store begin another leader epoch.
func beginEpoch(t *testing.T, store *memory.Store, b *broker) {
	t.Helper()
	changed := b.log.IncarnationChanged()
	store.Backup()(false)
	<-changed
}

func TestAPeerIsToldInWhichEpochItsPositionIs(t *testing.T) {
	store := memory.New()
	b := startFollowing(t, store, group.Config{}, 10*time.Millisecond)
	orders := b.topic(t, "orders", 1)
	wantEpoch := func(p group.Assignment, want int32, why string) {
		t.Helper()
		if got := p.Own[0].Epoch; got != want {
			t.Errorf("%s: the position is of epoch %d, want %d", why, got, want)
		}
	}
	first := b.log.LeaderEpoch()
	p := joinPeer(t, b, group.PeerConfig{})
	wantEpoch(p.Assignment(), first, "where the group begins")
	check(t, p.stop())
	beginEpoch(t, store, b)
	second := b.log.LeaderEpoch()
	p = joinPeer(t, b, group.PeerConfig{})
	wantEpoch(p.Assignment(), second, "the group has committed nothing: it begins now")
	orders[0].Offset, orders[0].LeaderEpoch = 3, second
	check(t, p.Commit(t.Context(), orders))
	wantEpoch(p.Assignment(), second, "what it committed itself")
	check(t, p.stop())
	beginEpoch(t, store, b)
	p = joinPeer(t, b, group.PeerConfig{})
	wantEpoch(p.Assignment(), second, "what another committed")
	orders[0].Offset, orders[0].LeaderEpoch = 4, -1
	check(t, p.Commit(t.Context(), orders))
	check(t, p.stop())
	p = joinPeer(t, b, group.PeerConfig{})
	wantEpoch(p.Assignment(), b.log.LeaderEpoch(), "a commit without an epoch")
	orders[0].Offset, orders[0].LeaderEpoch = 5, second-1
	check(t, p.Commit(t.Context(), orders))
	check(t, p.stop())
	p = joinPeer(t, b, group.PeerConfig{})
	wantEpoch(p.Assignment(), second-1, "an epoch that the log does not record, as it was planned or lost")
}

// A peer may give back what nobody asked for. What it gets again is another grant, at what was
// committed.
func TestWhatIsGivenBackAndGotAgainIsAnother(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		orders := b.topic(t, "orders", 2)
		p := joinPeer(t, b, group.PeerConfig{})
		before := p.Assignment()
		check(t, p.Commit(t.Context(), []group.Committed{at(orders[1], 5)}))
		if got := p.Assignment().Own[1].Position; got != 5 {
			t.Errorf("the position is %d, and 5 was committed", got)
		}
		check(t, p.Release(t.Context(), orders[1].TopicPartition, group.TopicPartition{Partition: 7}))
		synctest.Wait()
		after := p.Assignment()
		if len(after.Own) != 2 || after.Own[0] != before.Own[0] || after.Own[1].Since == before.Own[1].Since || after.Own[1].Position != 5 {
			t.Errorf("had %+v, and has %+v", before.Own, after.Own)
		}
		calm := after.Generation
		check(t, p.Release(t.Context()))
		if p.Generation() != calm {
			t.Error("giving back nothing made a new generation")
		}
	})
}
