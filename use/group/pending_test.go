package group_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// askID asks for a member id of the group, with the longest session, and does not use it.
func askID(t *testing.T, b *broker, name string) *player {
	t.Helper()
	p := newPlayer(b, name, "p")
	p.join.Session = 30 * time.Minute
	joined, err := b.Join(t.Context(), p.join)
	wantErr(t, err, group.ErrMemberIDRequired)
	p.join.Member = joined.Member
	return p
}

func TestMemberIDsThatNobodyUsesDoNotLockOutNewGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{}.With(group.Limits{GroupsMax: 3}))
		oldest := askID(t, b, "0")
		var newest *player
		for _, name := range []string{"1", "2", "3", "4"} {
			newest = askID(t, b, name)
		}
		_, err := b.Join(t.Context(), oldest.join)
		wantErr(t, err, group.ErrUnknownMember)
		settle(t, newest)
	})
}

func TestAMemberIDLastsAMinuteAtMostUntilItIsUsed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := startBroker(t, memory.New(), group.Config{})
		late, intime := askID(t, b, "late"), askID(t, b, "in time")
		time.Sleep(59 * time.Second)
		settle(t, intime)
		time.Sleep(2 * time.Second)
		_, err := b.Join(t.Context(), late.join)
		wantErr(t, err, group.ErrUnknownMember)
	})
}
