package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Each level, and each partition of each level, gets its turn while all have a backlog.
func TestNoLevelAndNoPartitionOfALevelStarves(t *testing.T) {
	for _, shape := range []struct{ levels, partitions int }{{5, 4}, {2, 8}, {8, 1}, {1, 4}} {
		t.Run(fmt.Sprintf("%d levels of %d partitions", shape.levels, shape.partitions), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: shape.partitions, Settings: queue.Settings{Priorities: shape.levels, Lease: time.Hour}})
				claims := 2 * 8 * max(shape.levels-1, 1) * shape.partitions // two turns for each partition of a lower level
				var backlog []queue.NewMessage
				for level := range shape.levels {
					for i := range 2 * claims {
						backlog = append(backlog, queue.NewMessage{Key: fmt.Append(nil, i), Priority: level})
					}
				}
				for len(backlog) > 0 {
					n := min(len(backlog), 500)
					if _, err := q.Enqueue(t.Context(), backlog[:n]...); err != nil {
						t.Fatal(err)
					}
					backlog = backlog[n:]
				}
				type place struct {
					topic     string
					partition int32
				}
				counts := make(map[place]int)
				for range claims {
					got := claimN(t, q, 1)
					ack(t, q, got...)
					counts[place{got[0].Topic, got[0].Partition}]++
				}
				for level := range shape.levels {
					topic := "mail"
					if level > 0 {
						topic = fmt.Sprintf("mail.p%d", level)
					}
					for p := range int32(shape.partitions) {
						if n := counts[place{topic, p}]; n < 2 {
							t.Errorf("of %d claims %d were of partition %d of level %d: %v", claims, n, p, level, counts)
						}
					}
				}
			})
		})
	}
}
