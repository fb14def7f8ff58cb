package sqlfn

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// A partition cannot be written for a while, for a reason of its own. What is published meanwhile
// comes behind what was published before.
func TestNoLaterRowOfAPartitionOvertakesOneThatCannotBeMoved(t *testing.T) {
	address := pgtest.URL(t)
	m := still(t, address)
	topic, err := m.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: "orders", Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	step := func() {
		t.Helper()
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	publish := func(values ...string) {
		t.Helper()
		for _, value := range values {
			pgtest.Exec(t, address, `SELECT weir.publish('orders', NULL, '`+value+`', partition => 0), weir.publish('orders', NULL, '`+value+`', partition => 1)`)
		}
	}
	if _, err := m.door.store.Commit(t.Context(), []eventlog.Entry{{Forgets: topic.Partitions[:1]}}); err != nil {
		t.Fatal(err)
	}
	publish("first", "second")
	step()
	if _, err := m.door.store.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: topic.Partitions[0]}}}}); err != nil {
		t.Fatal(err)
	}
	publish("third")
	step()
	m.inbox.rewind() // for whatever reason
	step()
	if got := readAll(t, address, "orders"); len(got) != 0 {
		t.Errorf("before the minute is over the partition holds %q", got)
	}
	if got := pgtest.Value(t, address, `SELECT string_agg(convert_from(value, 'UTF8'), ' ' ORDER BY id) FROM weir.inbox`); got != "first second third" {
		t.Errorf("in the inbox: %s; want those of the one partition, and none of the other", got)
	}
	m.skippedAt = m.skippedAt.Add(-retryRowsAfter - time.Second)
	publish("fourth")
	step()
	if got := readAll(t, address, "orders"); !slices.Equal(got, []string{"first", "second", "third", "fourth"}) {
		t.Errorf("the partition holds %q", got)
	}
}

// Rows that are left time and again, of one partition and another, are all tried again when the
// minute of the first is over.
func TestRowsThatAreLeftLaterDoNotPutOffThoseLeftBefore(t *testing.T) {
	m := New(nil, &Door{}, Config{})
	m.skip("one")
	first := m.skippedAt
	m.skip("another")
	if m.skippedAt != first {
		t.Errorf("left at %v, and again at %v", first, m.skippedAt)
	}
}
