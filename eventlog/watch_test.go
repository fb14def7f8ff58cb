package eventlog_test

import (
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// A watch of a topic tells of records in each of its partitions, also in those that it gets later,
// and of its end; and of nothing in other topics.
func TestAWatchTellsOfItsTopicAndOfNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		mine, other := topic(t, log, "mine", 3), topic(t, log, "other", 3)
		all, one := log.Watch(mine.ID), log.WatchPartition(mine.Partitions[1])
		told := func(after string, wantAll, wantOne bool) {
			t.Helper()
			synctest.Wait()
			for of, w := range map[string]struct {
				w    *eventlog.Watch
				want bool
			}{"the topic": {all, wantAll}, "its partition 1": {one, wantOne}} {
				got := false
				select {
				case <-w.w.Moved():
					got = true
				default:
				}
				if got != w.want {
					t.Errorf("after %s the watch of %s tells: %v, want %v", after, of, got, w.want)
				}
			}
		}
		publish := func(p eventlog.Partition) {
			t.Helper()
			if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		told("nothing", false, false)
		for i, p := range mine.Partitions {
			publish(p)
			told("a record", true, i == 1)
		}
		publish(other.Partitions[0])
		told("a record of another topic", false, false)
		grown, err := log.ChangeTopic(t.Context(), "mine", eventlog.TopicChange{Partitions: 4})
		if err != nil {
			t.Fatal(err)
		}
		told("a partition more", false, false)
		publish(grown.Partitions[3])
		told("a record in it", true, false)
		if err := log.DeleteTopic(t.Context(), "mine"); err != nil {
			t.Fatal(err)
		}
		told("its deletion", true, true)
		all.Close()
		one.Close()
		publish(other.Partitions[0])
		told("a record when nobody watches", false, false)
	})
}
