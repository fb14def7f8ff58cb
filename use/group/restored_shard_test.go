package group_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/shard"
	"github.com/weir-log/weir/use/group"
	"github.com/weir-log/weir/use/keys"
)

// While the shard that has the topics is as it was before a topic was made, groups on other shards
// keep their offsets in that topic: the shard may be restored again.
func TestAShardKeepsOffsetsOfATopicThatAnotherRestoredShardLacks(t *testing.T) {
	for _, long := range []time.Duration{time.Minute, time.Hour} {
		t.Run(long.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				home := memory.New()
				set, err := shard.Open(t.Context(), []shard.Shard{{Name: "a", Store: home}, {Name: "b", Store: memory.New()}},
					shard.Options{Rules: keys.Rules(), Logger: slog.New(slog.DiscardHandler)})
				check(t, err)
				defer set.Close()
				b := startFollowing(t, set, group.Config{}, time.Second)
				early := home.Backup()
				name := ""
				for i := 0; ; i++ {
					name = fmt.Sprint("g", i)
					if at, _ := set.ShardOf(group.StateKey(name)); at == 1 {
						break
					}
				}
				o := b.topic(t, "orders", 2)[1]
				commit(t, b, name, at(o, 3))
				late := home.Backup()
				early(false)
				time.Sleep(long)
				late(false)
				time.Sleep(time.Minute)
				wantOffset(t, b, name, o.TopicPartition, 3)
			})
		})
	}
}
