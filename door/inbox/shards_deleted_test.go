package inbox

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/keys"
)

// The topic of rows that were published, and not deleted, is deleted: they are not taken for
// refused ones. What is left in keys of its partitions goes.
func TestWhatWasPublishedBeforeItsTopicWasDeletedIsNotRefused(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite")
	m := r.opened()[1]
	r.in(1, true, "a", "0", "b", "1", "c", "2", "d", "3")
	if _, err := m.step(t.Context()); !errors.Is(err, errLearned) {
		t.Fatal(err)
	}
	m.door.database = failing{m.door.database}
	if _, err := m.step(t.Context()); !errors.Is(err, errDied) {
		t.Fatal(err)
	}
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	r.movers()
	r.empty()
	if n := r.rows(1, "weir_inbox_refused"); n > 0 {
		t.Errorf("%d rows were refused: %s", n, r.said)
	}
	r.opened()
	left := 0
	if err := r.log.ListAll(t.Context(), keys.InboxPrefix, func(eventlog.KeyValue) error { left++; return nil }); err != nil || left > 0 {
		t.Errorf("%d keys are left, %v", left, err)
	}
}

// Keys of deleted partitions go while the process runs, from the store and from its memory.
func TestKeysOfDeletedPartitionsGo(t *testing.T) {
	r := newSetRig(t, "sqlite", "sqlite")
	m := r.opened()[1]
	r.in(1, true, "a", "0", "b", "1", "c", "2", "d", "3")
	for range 2 {
		if _, err := m.step(t.Context()); err != nil && !errors.Is(err, errLearned) {
			t.Fatal(err)
		}
	}
	if len(m.published) == 0 {
		t.Fatal("nothing was published")
	}
	if err := r.log.DeleteTopic(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	want := func(when string, some bool) {
		t.Helper()
		if _, err := m.step(t.Context()); err != nil {
			t.Fatal(err)
		}
		left := 0
		if err := r.log.ListAll(t.Context(), keys.InboxPrefix, func(eventlog.KeyValue) error { left++; return nil }); err != nil || left > 0 != some || len(m.published) != left {
			t.Errorf("%s there are %d keys, and %d in memory; %v", when, left, len(m.published), err)
		}
	}
	want("at once", true)
	m.prunedAt = m.prunedAt.Add(-forgetEvery)
	want("after an hour", false)
}
