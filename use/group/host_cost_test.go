package group_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/simbucket"
	"github.com/weir-log/weir/use/group"

	_ "github.com/weir-log/weir/store/s3" // sets simbucket.OpenStore
)

// puts counts the PUTs to a bucket.
type puts struct {
	simbucket.Memory
	n atomic.Int64
}

func (b *puts) Put(ctx context.Context, key string, body []byte) (time.Time, error) {
	b.n.Add(1)
	return b.Memory.Put(ctx, key, body)
}

// On S3, where PUTs cost most, 2,000 idle members of one process cost at most 0.3 of them a second.
func TestIdleConsumersCostS3FewPuts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		bucket := new(puts)
		store, err := simbucket.OpenStore(t.Context(), "s3://bucket/weir", bucket, simbucket.Tuning{}, quiet)
		b := startBroker(t, opened(t, store, err), group.Config{})
		b.topic(t, "orders", idleMembers)
		var all []*kafkaMember
		for n := range idleMembers {
			all = append(all, &kafkaMember{b: b, id: fmt.Sprint("m", n)})
		}
		live := func(rounds int) {
			for range rounds {
				var running sync.WaitGroup
				for _, m := range all {
					running.Go(func() { check(t, m.beat(t.Context())) })
				}
				running.Wait()
				time.Sleep(5 * time.Second)
			}
		}
		for round := 0; slices.ContainsFunc(all, func(m *kafkaMember) bool { return len(m.has) != 1 }); live(1) {
			if round++; round > 10 {
				t.Fatal("they do not have one partition each")
			}
		}
		bucket.n.Store(0)
		live(4)
		if n := bucket.n.Load(); n == 0 || n > 20*3/10 {
			t.Errorf("20 seconds cost %d PUTs", n)
		}
	})
}
