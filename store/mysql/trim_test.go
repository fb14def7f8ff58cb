package mysql

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/mytest"
	"github.com/weir-log/weir/store/storetest"
)

// trimmed trims partition 1, and waits until all that is trimmed is deleted.
func trimmed(t *testing.T, s *Store, before eventlog.Offset) {
	t.Helper()
	if err := storetest.Trim(t.Context(), s, 1, before); err != nil {
		t.Fatal(err)
	}
	swept(t, s)
}

func swept(t *testing.T, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		var n int
		if err := s.reads.QueryRowContext(t.Context(), "SELECT count(*) FROM weir_trash").Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("trimmed batches are not deleted after a minute")
		}
	}
}

// basesIn returns the base offsets of the batches and of the pieces in the tables.
func basesIn(t *testing.T, address string) string {
	t.Helper()
	const bases = "(SELECT group_concat(base_offset ORDER BY base_offset) FROM "
	return mytest.Value(t, address, "SELECT concat(coalesce("+bases+"weir_batch), ''), ' ', coalesce("+bases+"weir_piece), ''))")
}

// While a transaction is open that began before, the server keeps the rows of deleted batches, and
// whoever searches among them reads them all. So a trim begins where the last one ended: a row that
// is put below is not touched, although the batch in whose middle the last trim was is deleted.
func TestATrimBeginsWhereTheLastOneEnded(t *testing.T) {
	address := mytest.URL(t)
	s := at(t, address)
	tenBatches := eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}}
	for range 10 {
		tenBatches.Batches = append(tenBatches.Batches, eventlog.Batch{Partition: 1, Records: 10, Bytes: []byte("ten records")})
	}
	must(t, s, tenBatches)
	trimmed(t, s, 35)
	if got, want := basesIn(t, address), "30,40,50,60,70,80,90 30,40,50,60,70,80,90"; got != want {
		t.Fatalf("%s are left, want %s", got, want)
	}
	mytest.Exec(t, address, "INSERT INTO weir_batch SELECT partition_id, 7, records, max_time, newest, first_byte, size FROM weir_batch WHERE base_offset = 30",
		"INSERT INTO weir_piece VALUES (1, 7, 0, 'x')")
	for _, before := range []eventlog.Offset{36, 70} {
		trimmed(t, s, before)
	}
	if got, want := basesIn(t, address), "7,70,80,90 7,70,80,90"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
	must(t, s, tenBatches)
	trimmed(t, s, 200)
	if got, want := basesIn(t, address), "7 7"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
	if got, want := mytest.Value(t, address, "SELECT concat(partition_id, ' ', below) FROM weir_swept"), "1 200"; got != want {
		t.Errorf("weir_swept has %s, want %s", got, want)
	}
	must(t, s, eventlog.Entry{Forgets: []eventlog.Partition{1}})
	swept(t, s)
	if got := mytest.Value(t, address, "SELECT count(*) FROM weir_swept"); got != "0" {
		t.Error("weir_swept still has a row for a partition that does not exist")
	}
}

// A deletion that takes many steps notes after each where the next begins.
func TestALongDeletionIsNotedStepByStep(t *testing.T) {
	address := mytest.URL(t)
	s := at(t, address)
	s.close() // the sweeper
	s.work.Wait()
	entry := eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}}}
	for range 2*sweepBatches + 3 {
		entry.Batches = append(entry.Batches, eventlog.Batch{Partition: 1, Records: 2, Bytes: []byte("two")})
	}
	must(t, s, entry)
	if err := storetest.Trim(t.Context(), s, 1, math.MaxInt64); err != nil {
		t.Fatal(err)
	}
	for _, below := range []int{2 * sweepBatches, 4 * sweepBatches, 4*sweepBatches + 6} {
		if more, err := s.sweepStep(t.Context()); err != nil || !more {
			t.Fatal(more, err)
		}
		if got := mytest.Value(t, address, "SELECT below FROM weir_swept"); got != fmt.Sprint(below) {
			t.Errorf("%s are deleted, want %d", got, below)
		}
	}
	if more, err := s.sweepStep(t.Context()); err != nil || more {
		t.Error(more, err)
	}
}

// A database of a weir that had no weir_swept is opened, and what was trimmed there is deleted.
func TestADatabaseWithoutWeirSweptIsUpgraded(t *testing.T) {
	address := mytest.URL(t)
	s := at(t, address)
	must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: []byte("a")}, {Partition: 1, Records: 1, Bytes: []byte("b")}}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	mytest.Exec(t, address, "DROP TABLE weir_swept", "DELETE FROM weir_migration WHERE version >= 2", "UPDATE weir_partition SET first_offset = 1", "INSERT INTO weir_trash VALUES (1, 1)")
	s = at(t, address)
	swept(t, s)
	if got, want := basesIn(t, address), "1 1"; got != want {
		t.Errorf("%s are left, want %s", got, want)
	}
}

// Where a partition's first batch is not there, only this partition cannot be trimmed and searched.
func TestAMissingBatchWithholdsNoOtherPartition(t *testing.T) {
	address := mytest.URL(t)
	s := at(t, address)
	var entry eventlog.Entry
	for id := range eventlog.Partition(3) {
		three := eventlog.Batch{Partition: id + 1, Records: 3, Bytes: []byte("here")}
		entry.Batches = append(entry.Batches, eventlog.Batch{Partition: id + 1}, three, three)
	}
	must(t, s, entry)
	mytest.Exec(t, address, "DELETE FROM weir_batch WHERE partition_id = 2 AND base_offset = 0")
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

// A newer weir has upgraded the tables, or another server has taken over: the sweeper deletes
// nothing there.
func TestTheSweeperStopsWhereCommitsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		statement string
		want      error
	}{
		"newer tables":        {"INSERT INTO weir_migration VALUES (900)", eventlog.ErrUpgraded},
		"another incarnation": {"DELETE FROM weir_life", eventlog.ErrRewound},
	} {
		t.Run(name, func(t *testing.T) {
			address := mytest.URL(t)
			s := at(t, address)
			s.close() // the sweeper
			s.work.Wait()
			must(t, s, eventlog.Entry{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: []byte("a")}, {Partition: 1, Records: 1, Bytes: []byte("b")}}})
			if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
				t.Fatal(err)
			}
			if err := storetest.Trim(t.Context(), s, 1, 1); err != nil {
				t.Fatal(err)
			}
			mytest.Exec(t, address, c.statement)
			if _, err := s.sweepStep(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("the sweeper: %v, want %v", err, c.want)
			}
			if got, want := basesIn(t, address), "0,1 0,1"; got != want {
				t.Errorf("%s are left, want %s", got, want)
			}
		})
	}
}
