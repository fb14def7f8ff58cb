package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weir-log/weir/door/inbox"
	"github.com/weir-log/weir/door/sqlfn"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/verify"
	"github.com/weir-log/weir/use/group"
)

// consumed is a rig with a group that has committed half of each partition of a topic.
func consumed(r *rig) (topic eventlog.Topic, key string) {
	r.t.Helper()
	topic = published(r)
	var offsets []group.Committed
	for n := range topic.Partitions {
		offsets = append(offsets, group.Committed{TopicPartition: group.TopicPartition{Topic: topic.ID, Partition: int32(n)}, Name: topic.Name, Offset: 15})
	}
	errs, err := r.Groups.Commit(r.t.Context(), group.Commit{Group: "billing", Generation: -1, Offsets: offsets})
	r.must(err)
	for _, err := range errs {
		r.must(err)
	}
	r.clean()
	return topic, group.OffsetKey("billing", group.TopicPartition{Topic: topic.ID, Partition: 1})
}

func TestACommittedOffsetBeyondTheEndIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		_, key := consumed(r)
		r.put(eventlog.Put{Key: key, Value: []byte(strings.Replace(string(r.get(key)), `"offset":15`, `"offset":31`, 1))})
		r.finds("groups", verify.AtKey(key))
	})
}

func TestACommittedOffsetOfAPartitionThatATopicNeverHadIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic, key := consumed(r)
		beyond := group.OffsetKey("billing", group.TopicPartition{Topic: topic.ID, Partition: 2})
		r.put(eventlog.Put{Key: beyond, Value: r.get(key)})
		r.finds("groups", verify.AtKey(beyond))
	})
}

func TestAGroupsDamagedKeyIsFound(t *testing.T) {
	eachStore(t, func(r *rig) {
		_, key := consumed(r)
		for _, damaged := range []string{key, group.StateKey("billing")} {
			before := r.get(damaged)
			r.put(eventlog.Put{Key: damaged, Value: []byte(`{"offset":`)})
			r.finds("groups", verify.AtKey(damaged))
			r.put(eventlog.Put{Key: damaged, Value: before})
		}
		r.clean()
	})
}

// What is left of a deleted topic is no contradiction: it expires.
func TestOffsetsOfADeletedTopicAreNoFinding(t *testing.T) {
	eachStore(t, func(r *rig) {
		topic, _ := consumed(r)
		r.must(r.Log.DeleteTopic(r.t.Context(), topic.Name))
		r.clean()
	})
}

func TestAPositionOfSQLBeyondTheEndIsFound(t *testing.T) {
	for _, kind := range []string{"postgres", "mysql"} {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, kind)
			topic := published(r)
			_, err := sqlfn.Attach(t.Context(), r.store)
			r.must(err)
			_, err = inbox.Attach(t.Context(), r.store, quiet)
			r.must(err)
			// count groups, more than one statement reads.
			position := func(group string, count, at int) {
				r.statement(map[string]string{
					"postgres": fmt.Sprintf(`WITH c AS (INSERT INTO weir.consumer (grp, topic, partition) SELECT '%s ü ' || n, '%s', 1 FROM generate_series(1, %d) AS n RETURNING id)
						INSERT INTO weir.consumed (consumer, next_offset, committed_at) SELECT id, %d, now() FROM c`, group, topic.ID, count, at),
					"mysql": fmt.Sprintf(`INSERT INTO weir_position SELECT CONCAT('%s ü ', seq), '%s', 1, %d FROM seq_1_to_%d`, group, topic.ID, at, count),
				})
			}
			position("group", 1500, 30)
			r.clean()
			position("the last", 1, 31)
			r.finds("positions", at(topic, 31))
		})
	}
}
