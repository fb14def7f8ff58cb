package group_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/group"
)

// Clients share the store's groups: one makes half of what others leave, so that there is always
// space for one more client. What it made counts for it until it is gone, in each process.
func TestNoClientFillsTheStoreWithGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store, cfg := memory.New(), group.Config{}.With(group.Limits{StoredMax: 16, OffsetRetention: time.Hour, ExpireEvery: time.Minute})
		b := startBroker(t, store, cfg)
		offsets := b.topic(t, "orders", 1)
		commit := func(b *broker, by, name string) error {
			_, err := b.Commit(t.Context(), group.Commit{Group: name, Generation: -1, By: by, Offsets: offsets})
			return err
		}
		join := func(b *broker, by, name string) error {
			p := newPlayer(b, name, "p")
			p.join.By, p.join.Session = by, 30*time.Minute
			err := p.enter(t.Context())
			if err == nil {
				err = p.sync(t.Context())
			}
			return err
		}
		peer := func(b *broker, by, name string) error {
			_, err := b.JoinPeer(t.Context(), group.PeerConfig{Group: name, By: by, Topics: []string{"orders"}, Session: 30 * time.Minute, Logger: quiet})
			return err
		}
		ways := []func(*broker, string, string) error{commit, join, peer}
		// fill makes groups in all ways until it is refused.
		made := 0
		fill := func(by string, want int) {
			t.Helper()
			for n := range want {
				made++
				check(t, ways[n%len(ways)](b, by, fmt.Sprint("g", made)))
			}
			for _, way := range ways {
				err := way(b, by, "more")
				wantErr(t, err, group.ErrTooMany)
				if by != "" && !strings.Contains(err.Error(), fmt.Sprintf("this client has made %d, the limit is %d", want, want)) {
					t.Errorf("%s: %v", by, err)
				}
			}
		}
		fill("greedy", 8)
		another := startBroker(t, store, cfg)
		time.Sleep(time.Second) // it counts the groups
		wantErr(t, commit(another, "greedy", "more"), group.ErrTooMany)
		check(t, another.Delete(t.Context(), "g1"))
		check(t, commit(another, "greedy", "g1"))
		wantErr(t, commit(another, "greedy", "more"), group.ErrTooMany)
		another.stop()
		fill("second", 4)
		fill("third", 2)
		check(t, commit(b, "greedy", "g1")) // it is there already
		check(t, commit(b, "second", "g1")) // whoever made it
		fill("", 2)                         // nobody who is known has what is left
		wantErr(t, commit(b, "fourth", "more"), group.ErrTooMany)
		b.stop()
		b = startBroker(t, store, cfg)
		time.Sleep(3 * time.Hour) // members are evicted, and what they left expires
		fill("greedy", 8)
	})
}
