package postgres_test

import (
	"errors"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
)

// A piece of a batch that is gone is an error of its own partition, with the place in it, and no
// panic; the others are read.
func TestAMissingPieceWithholdsNoOtherPartition(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 3)
	publish(t, s, batch(1, 10), batch(1, 20_000), batch(1, 10), batch(2, 10))
	for _, c := range [][2]string{{"the last piece", "piece = 2"}, {"all pieces", "true"}} {
		what, where := c[0], c[1]
		pgtest.Exec(t, address, `DELETE FROM weir.batch WHERE partition_id = 1 AND base_offset = 1 AND `+where)
		read := func(from eventlog.Offset) []eventlog.Slice {
			t.Helper()
			got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 1 << 20}, {Partition: 2, MaxBytes: 1 << 20}}, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if got[1].Err != nil || len(got[1].Batches) != 1 {
				t.Errorf("%s: the other partition: %+v", what, got[1])
			}
			return got
		}
		if got := read(0); got[0].Err != nil || len(got[0].Batches) == 0 {
			t.Errorf("%s: before the damage: %+v", what, got[0])
		}
		var damaged *eventlog.DamagedError
		if got := read(1); !errors.As(got[0].Err, &damaged) || damaged.From != 1 || damaged.Next != 2 || len(got[0].Batches) > 0 {
			t.Errorf("%s: at the damage: %+v", what, got[0])
		}
		if got := read(2); got[0].Err != nil || len(got[0].Batches) != 1 {
			t.Errorf("%s: behind the damage: %+v", what, got[0])
		}
	}
}

// Where batches are not there, not even a piece of them, the error says where the next one begins:
// readers go on there.
func TestMissingBatchesSayWhereTheNextOneBegins(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 2)
	for range 6 {
		b := batch(1, 10)
		b.Records = 3
		publish(t, s, b, batch(2, 10))
	}
	pgtest.Exec(t, address, `DELETE FROM weir.batch WHERE partition_id = 1 AND base_offset IN (0, 6, 9, 15)`)
	for from, next := range map[eventlog.Offset]eventlog.Offset{0: 3, 2: 3, 6: 12, 8: 12, 10: 12, 15: 18, 17: 18} {
		got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: from, MaxBytes: 100}, {Partition: 2, MaxBytes: 100}}, 200)
		if err != nil {
			t.Fatal(err)
		}
		damaged, is := got[0].Err.(*eventlog.DamagedError)
		if !is || damaged.From != from || damaged.Next != next || len(got[0].Batches) > 0 {
			t.Errorf("from %d: %+v, want an error that says to go on at %d", from, got[0], next)
		}
		if got[1].Err != nil || len(got[1].Batches) == 0 {
			t.Errorf("the other partition: %+v", got[1])
		}
	}
}

// Where a partition's first batch is not there, only this partition cannot be trimmed and searched.
func TestAMissingBatchWithholdsNoOtherPartition(t *testing.T) {
	address := pgtest.URL(t)
	s := at(t, address)
	openPartitions(t, s, 3)
	for range 2 {
		for id := range eventlog.Partition(3) {
			b := batch(id+1, 10)
			b.Records = 3
			publish(t, s, b)
		}
	}
	pgtest.Exec(t, address, `DELETE FROM weir.batch WHERE partition_id = 2 AND base_offset = 0`)
	found, err := s.Seek(t.Context(), []eventlog.Goal{{Partition: 1, Bytes: 15}, {Partition: 2, Bytes: 15}, {Partition: 3, Bytes: 15}})
	if err != nil || found[0] != (eventlog.Found{}) || found[1].Err == nil || errors.Is(found[1].Err, eventlog.ErrNoPartition) || found[2] != (eventlog.Found{}) {
		t.Errorf("seek: %+v, %v", found, err)
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
