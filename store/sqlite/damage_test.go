package sqlite

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// A batch whose bytes are gone is an error of its own partition, with the place in it; the others
// are read.
func TestAMissingBodyWithholdsNoOtherPartition(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1}, eventlog.Batch{Partition: 2},
		eventlog.Batch{Partition: 1, Records: 3, Bytes: []byte("gone")}, eventlog.Batch{Partition: 2, Records: 1, Bytes: []byte("here")})
	w := <-s.writer.idle
	_, err := w.integer("DELETE FROM body WHERE bytes = CAST('gone' AS BLOB) RETURNING 1")
	s.writer.give(w)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: 1, MaxBytes: 100}, {Partition: 2, MaxBytes: 100}}, 200)
	if err != nil {
		t.Fatal(err)
	}
	var damaged *eventlog.DamagedError
	if !errors.As(got[0].Err, &damaged) || damaged.Partition != 1 || damaged.Next != 3 || len(got[0].Batches) > 0 {
		t.Errorf("the partition: %+v", got[0])
	}
	if got[1].Err != nil || len(got[1].Batches) != 1 {
		t.Errorf("the other one: %+v", got[1])
	}
}

// Where batches are not there, not even their heads, the error says where the next one begins:
// readers go on there.
func TestMissingBatchesSayWhereTheNextOneBegins(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	for range 6 {
		commit(t, s, eventlog.Batch{Partition: 1, Records: 3, Bytes: []byte("here")})
	}
	w := <-s.writer.idle
	_, err := w.integer("DELETE FROM batch WHERE base_offset IN (0, 6, 9, 15) RETURNING 1")
	s.writer.give(w)
	if err != nil {
		t.Fatal(err)
	}
	for from, next := range map[eventlog.Offset]eventlog.Offset{0: 3, 2: 3, 6: 12, 8: 12, 10: 12, 15: 18, 17: 18} {
		got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 100}}, 100)
		if err != nil {
			t.Fatal(err)
		}
		damaged, is := got[0].Err.(*eventlog.DamagedError)
		if !is || damaged.From != from || damaged.Next != next || len(got[0].Batches) > 0 {
			t.Errorf("from %d: %+v, want an error that says to go on at %d", from, got[0], next)
		}
	}
	for from, batches := range map[eventlog.Offset]int{3: 2, 12: 1} { // the log sees the hole between two of them
		got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 8}}, 8)
		if err != nil || got[0].Err != nil || len(got[0].Batches) != batches {
			t.Errorf("from %d: %+v, %v, want %d batches", from, got, err, batches)
		}
	}
}

// Where a partition's first batch is not there, not even its head, only this partition cannot be
// trimmed and searched.
func TestAMissingHeadWithholdsNoOtherPartition(t *testing.T) {
	s := openTest(t)
	for id := range eventlog.Partition(3) {
		commit(t, s, eventlog.Batch{Partition: id + 1})
		for range 2 {
			commit(t, s, eventlog.Batch{Partition: id + 1, Records: 3, Bytes: []byte("here")})
		}
	}
	w := <-s.writer.idle
	_, err := w.integer("DELETE FROM batch WHERE partition_id = 2 AND base_offset = 0 RETURNING 1")
	s.writer.give(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, goal := range []eventlog.Goal{{At: 0}, {Bytes: 7}} {
		goals := []eventlog.Goal{goal, goal, goal}
		for i := range goals {
			goals[i].Partition = eventlog.Partition(i + 1)
		}
		found, err := s.Seek(t.Context(), goals)
		if err != nil || found[0] != (eventlog.Found{}) || found[1].Err == nil || found[2] != (eventlog.Found{}) {
			t.Errorf("seek %+v: %+v, %v", goal, found, err)
		}
	}
	errs, err := s.Trim(t.Context(), []eventlog.Trim{{Partition: 3, Before: 2}, {Partition: 2, Before: 2}, {Partition: 1, Before: 2}})
	if err != nil || errs[0] != nil || errs[1] == nil || errs[2] != nil {
		t.Errorf("trim: %v, %v", errs, err)
	}
	got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1}, {Partition: 2}, {Partition: 3}}, 0)
	if err != nil || got[0].Bounds.First != 2 || got[1].Bounds.First != 0 || got[2].Bounds.First != 2 {
		t.Errorf("trimmed: %+v, %v", got, err)
	}
}
