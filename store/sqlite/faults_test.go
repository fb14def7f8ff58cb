package sqlite

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

// refused makes commits until one fails, and returns how many records are there and the error.
func refused(t *testing.T, s *Store) (eventlog.Offset, error) {
	t.Helper()
	for n := range eventlog.Offset(1000) {
		outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{
			Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, 100_000)}},
			Puts:    []eventlog.Put{{Key: "count", Version: eventlog.Version(n + 1), Value: []byte("v")}},
		}})
		if err != nil {
			return n, err
		}
		if outcomes[0].Err != nil {
			return n, outcomes[0].Err
		}
	}
	t.Fatal("no commit failed: the test tests nothing")
	return 0, nil
}

// holds checks that so many records are there, each with its key's version, and that the next gets
// the next offset.
func holds(t *testing.T, s *Store, records eventlog.Offset) {
	t.Helper()
	slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 30}}, 1<<30)
	if err != nil || len(slices[0].Batches) != int(records) || slices[0].Bounds.Next != records {
		t.Fatalf("%d batches up to %d (%v), want %d", len(slices[0].Batches), slices[0].Bounds.Next, err, records)
	}
	if list, err := s.List(t.Context(), "count", "", 1); err != nil || list[0].Version != eventlog.Version(records) {
		t.Fatalf("version %+v (%v), want %d", list, err, records)
	}
	if base := commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1000)}); base[0] != records {
		t.Errorf("the next record got offset %d, want %d", base[0], records)
	}
}

func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	limit := func(statement string) {
		w := <-s.writer.idle
		defer s.writer.give(w)
		if _, err := w.integer(statement); err != nil {
			t.Fatal(err)
		}
	}
	limit("PRAGMA max_page_count = 200")
	n, err := refused(t, s)
	if !errors.Is(err, eventlog.ErrNoSpace) || !strings.Contains(err.Error(), s.path()) {
		t.Errorf("commit to a full disk: %v, want ErrNoSpace and the file", err)
	}
	limit("PRAGMA max_page_count = 4294967294")
	holds(t, s, n)
}

func TestAnAlmostFullDiskRefusesRecordsAlone(t *testing.T) {
	var now atomic.Pointer[disk]
	now.Store(&disk{free: 50 << 30, total: 100 << 30})
	s := openWith(t, Options{disk: func(string) (disk, error) { return *now.Load(), nil }})
	commit(t, s, eventlog.Batch{Partition: 1}, eventlog.Batch{Partition: 1, Records: 5, Bytes: make([]byte, 1000)})
	now.Store(&disk{free: 100 << 20, total: 100 << 30})
	outcomes, err := s.Commit(t.Context(), []eventlog.Entry{
		{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, 1000)}}},
		{Puts: []eventlog.Put{{Key: "a topic to be deleted", Version: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := outcomes[0].Err; !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("records: %v, want ErrUnavailable", err)
	}
	if err := outcomes[1].Err; err != nil {
		t.Errorf("a put: %v", err)
	}
	if err := storetest.Trim(t.Context(), s, 1, 5); err != nil {
		t.Errorf("trim: %v", err)
	}
	now.Store(&disk{free: 100 << 20, total: 1 << 30})
	if base := commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 4<<20)}); base[0] != 5 {
		t.Errorf("on a small disk the next record got offset %d, want 5", base[0])
	}
	if err := storetest.Trim(t.Context(), s, 1, 6); err != nil {
		t.Errorf("trim: %v", err)
	}
	swept(t, s)
	now.Store(&disk{free: 1 << 20, total: 40 << 20})
	if base := commit(t, s, eventlog.Batch{Partition: 1, Records: 1}); base[0] != 6 {
		t.Errorf("with room within the file the next record got offset %d, want 6", base[0])
	}
}

func TestCommitWaitsForAnotherProcessNoLongerThanItsCaller(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	other, err := connect(s.path(), "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	if err := other.set([]string{"PRAGMA busy_timeout = 60000"}); err != nil { // the keeper may be writing
		t.Fatal(err)
	}
	if err := other.exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50e6)
	defer cancel()
	_, err = s.Commit(ctx, []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1, Records: 1}}}})
	if !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("commit while another process writes: %v, want ErrUnavailable and DeadlineExceeded", err)
	}
	if err := other.close(); err != nil {
		t.Fatal(err)
	}
	if base := commit(t, s, eventlog.Batch{Partition: 1, Records: 1}); base[0] != 0 {
		t.Errorf("the first record got offset %d", base[0])
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := openTest(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []eventlog.Entry{{}}); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("commit: %v, want ErrClosed", err)
	}
	if _, err := s.Read(t.Context(), nil, 0); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("read: %v, want ErrClosed", err)
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, eventlog.ErrClosed) {
		t.Errorf("moved: %v, want ErrClosed", err)
	}
}
