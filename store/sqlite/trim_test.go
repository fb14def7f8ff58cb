package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// count runs a statement that counts.
func count(t *testing.T, s *Store, statement string) (n int64) {
	t.Helper()
	err := s.view(t.Context(), func(r *conn) (err error) {
		n, err = r.integer(statement)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// swept waits until nothing is left to delete.
func swept(t *testing.T, s *Store) {
	t.Helper()
	for began := time.Now(); count(t, s, "SELECT count(*) FROM trash") > 0; {
		if time.Since(began) > 20*time.Second {
			t.Fatal("what was trimmed is not deleted")
		}
	}
}

func fill(t *testing.T, s *Store, id eventlog.Partition) {
	t.Helper()
	for range 40 {
		commit(t, s, eventlog.Batch{Partition: id, Records: 10, Bytes: make([]byte, 1<<19)})
	}
}

func TestTrimmedSpaceIsUsedAgain(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1}, eventlog.Batch{Partition: 2})
	fill(t, s, 1)
	pages := count(t, s, "PRAGMA page_count")
	for round := range 3 {
		if err := storetest.Trim(t.Context(), s, 1, eventlog.Offset(400*(round+1)-5)); err != nil {
			t.Fatal(err)
		}
		swept(t, s)
		if got := count(t, s, "SELECT count(*) FROM body"); got != 1 {
			t.Errorf("round %d: %d bodies are left, want that of the batch which holds first", round, got)
		}
		fill(t, s, 1)
	}
	if got := count(t, s, "PRAGMA page_count"); got > pages+pages/4 {
		t.Errorf("the file grew from %d pages to %d, with the same in it", pages, got)
	}
	if batches, bodies := count(t, s, "SELECT count(*) FROM batch"), count(t, s, "SELECT count(*) FROM body"); batches != 41 || bodies != 41 {
		t.Errorf("%d batches with %d bodies, want 41", batches, bodies)
	}
}

func TestForgottenPartitionsLeaveNothingBehind(t *testing.T) {
	s := openTest(t)
	for id := range eventlog.Partition(5) {
		commit(t, s, eventlog.Batch{Partition: id}, eventlog.Batch{Partition: id, Records: 1, Bytes: make([]byte, 100_000)})
		if _, err := s.Commit(t.Context(), []eventlog.Entry{{Forgets: []eventlog.Partition{id}}}); err != nil {
			t.Fatal(err)
		}
	}
	swept(t, s)
	for _, table := range []string{"partition", "batch", "body"} {
		if got := count(t, s, "SELECT count(*) FROM "+table); got != 0 {
			t.Errorf("%d rows are left in %s", got, table)
		}
	}
}

func TestDeletionGoesOnAfterARestart(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1}, eventlog.Batch{Partition: 2})
	fill(t, s, 1)
	fill(t, s, 2)
	// As if the process ended right after Trim: the keeper is not told.
	err := s.change(t.Context(), func(w *conn) error {
		_, err := w.trim([]eventlog.Trim{{Partition: 1, Before: 395}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, s, "SELECT count(*) FROM batch"); got != 80 {
		t.Fatalf("%d batches before the restart, want all 80: the test tests nothing", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), s.path(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	swept(t, again)
	if got := count(t, again, "SELECT count(*) FROM batch"); got != 41 {
		t.Errorf("%d batches are left, want 41", got)
	}
}

func TestOneStepOfDeletionIsBounded(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	s.keeper.cancel()
	<-s.keeper.ended // this test sweeps by hand
	fill(t, s, 1)
	if err := s.change(t.Context(), func(w *conn) error { return w.exec(sqlAddTrash, int64(1), int64(400)) }); err != nil {
		t.Fatal(err)
	}
	left := count(t, s, "SELECT count(*) FROM batch")
	for more := true; more; {
		var err error
		if more, err = s.sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := count(t, s, "SELECT count(*) FROM batch")
		if gone := left - now; gone > sweepBytes>>19 {
			t.Errorf("one step deleted %d batches, want at most %d", gone, sweepBytes>>19)
		}
		left = now
	}
	if left != 0 {
		t.Errorf("%d batches are left", left)
	}
}

// A newer weir has upgraded the tables, or a backup was copied into the file: the keeper deletes
// nothing there.
func TestTheKeeperStopsWhereCommitsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		want   error
	}{
		"newer tables":        {"PRAGMA user_version = 900; CREATE TABLE newer (a)", eventlog.ErrUpgraded},
		"another incarnation": {"CREATE TABLE other (a)", eventlog.ErrRewound},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t)
			s.keeper.cancel()
			<-s.keeper.ended // this test sweeps by hand
			one := eventlog.Batch{Partition: 1, Records: 1, Bytes: []byte("x")}
			commit(t, s, eventlog.Batch{Partition: 1}, one, one)
			if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
				t.Fatal(err)
			}
			if err := storetest.Trim(t.Context(), s, 1, 1); err != nil {
				t.Fatal(err)
			}
			script(t, s.path(), c.script)
			if _, err := s.sweep(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("the keeper: %v, want %v", err, c.want)
			}
			if got := count(t, s, "SELECT count(*) FROM batch"); got != 2 {
				t.Errorf("%d batches are left, want 2", got)
			}
		})
	}
}
