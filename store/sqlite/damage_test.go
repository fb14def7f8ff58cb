package sqlite

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// A batch whose bytes are gone is an error of its own partition, with the place in it; the others are read.
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
