package group_test

import (
	"testing"
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
	wantEpoch(p.Assignment(), b.log.LeaderEpoch(), "an epoch that the log does not record")
}
