package group

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	store "github.com/weir-log/weir/store/memory"
)

// Each change of a group costs time in proportion to its partitions. A thousand partitions given
// back one by one must not take a thousand changes.
func TestPartitionsGivenBackAtOnceAreOneChangeOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 1000
		log, err := eventlog.Open(t.Context(), store.New(), eventlog.Config{Poll: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- log.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		if _, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: partitions}); err != nil {
			t.Fatal(err)
		}
		var ps [2]*Peer
		groups := New(log, Config{})
		for i := range ps {
			if ps[i], err = groups.JoinPeer(t.Context(), PeerConfig{Group: "g", Topics: []string{"orders"}}); err != nil {
				t.Fatal(err)
			}
		}
		p := ps[0]
		if err := p.look(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		before := p.Assignment()
		if len(before.Revoking) != partitions/2 {
			t.Fatalf("%d partitions are to be given back, want half", len(before.Revoking))
		}
		<-p.turn
		results := make(chan error, len(before.Revoking))
		impatient, giveUp := context.WithCancel(t.Context())
		for i, r := range before.Revoking {
			ctx := t.Context()
			if i == 0 {
				ctx = impatient
			}
			go func() { results <- p.Release(ctx, r.TopicPartition) }()
		}
		synctest.Wait()
		giveUp()
		if err := <-results; !errors.Is(err, ErrUnavailable) {
			t.Fatalf("one that gave up: %v", err)
		}
		p.giveTurn()
		for range len(before.Revoking) - 1 {
			if err := <-results; err != nil {
				t.Fatal(err)
			}
		}
		after := p.Assignment()
		if changes := after.Generation - before.Generation; changes != 1 {
			t.Errorf("%d partitions were given back with %d changes of the group, want 1", len(before.Revoking)-1, changes)
		}
		if len(after.Own) != partitions/2 || len(after.Revoking) != 1 || after.Revoking[0].TopicPartition != before.Revoking[0].TopicPartition {
			t.Errorf("it has %d partitions and gives back %v, want %d and the one whose caller gave up", len(after.Own), after.Revoking, partitions/2)
		}
	})
}
