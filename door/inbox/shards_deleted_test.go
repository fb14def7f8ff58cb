package inbox

import (
	"errors"
	"strings"
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

func TestAKeyThatDoesNotHoldIDsOfRowsSaysWhy(t *testing.T) {
	m := newSetRig(t, "sqlite", "sqlite").opened()[1]
	for value, want := range map[string]string{
		`{"ids": [1, 2], "at": [7]}`: "it has 2 ids and 1 times",
		`{"ids": 1}`:                 "cannot unmarshal number",
		`nothing`:                    "invalid character",
	} {
		err := m.forgive(t.Context(), m.door, "", eventlog.KeyValue{Key: m.key(4711), Value: []byte(value)})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), m.key(4711)) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

// A row may get the id of one that is gone, and would have its target. What is not committed yet
// holds up nobody.
func TestARowThatIsGoneGetsNoTarget(t *testing.T) {
	r := newSetRig(t, "postgres", "mysql", "sqlite")
	for n, m := range r.opened() {
		r.in(n, true, "k", "0")
		chunk, err := m.read(t.Context())
		if err != nil || len(chunk) != 1 {
			t.Fatalf("shard %d: %d rows, %v", n, len(chunk), err)
		}
		if r.kinds[n] != "sqlite" { // one transaction at a time writes there
			tx, err := r.dbs[n].Begin()
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec(publishes[r.kinds[n]], "orders", "k", "1"); err != nil {
				t.Fatal(err)
			}
		}
		id := chunk[0].id
		if err := m.door.aim(t.Context(), m.in, []target{{id: id}, {id: id + 4711}}); err != nil {
			t.Fatalf("shard %d: %v", n, err)
		}
		var aimed int64
		if err := r.dbs[n].QueryRow("SELECT sum(id) FROM " + r.table(n, "weir_inbox_target")).Scan(&aimed); err != nil || aimed != id {
			t.Errorf("shard %d: the ids of the targets add up to %d, want %d; %v", n, aimed, id, err)
		}
	}
}
