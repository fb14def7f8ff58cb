package sqlite

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/smalldisk"
	"github.com/weir-log/weir/store/storetest"
)

// openSmall opens a store on a disk of 24 MiB.
func openSmall(t *testing.T, dir string) (*Store, error) {
	t.Helper()
	options := Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	return Open(t.Context(), filepath.Join(dir, "log.db"), options)
}

func mustOpenSmall(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := openSmall(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

const smallDisk = 24 << 20

// record tries to publish one record.
func record(t *testing.T, s *Store, size int) error {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, size)}}}})
	if err != nil {
		return err
	}
	return outcomes[0].Err
}

// put changes a key, as a deletion or a group does.
func put(t *testing.T, s *Store, key string) error {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{Puts: []eventlog.Put{{Key: key, Version: 1, Value: []byte("v")}}}})
	if err != nil {
		return err
	}
	return outcomes[0].Err
}

// refusal asks the store why it takes no records.
func refusalOf(t *testing.T, s *Store) error {
	t.Helper()
	refusal, err := s.Writable(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return refusal
}

// fillWithRecords publishes until the store refuses, and returns how many records it took.
func fillWithRecords(t *testing.T, s *Store) (taken eventlog.Offset, refusal error) {
	t.Helper()
	for refusal = record(t, s, 100_000); refusal == nil; refusal = record(t, s, 100_000) {
		taken++
	}
	return taken, refusal
}

func checkNoSpace(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrNoSpace) || !errors.Is(err, eventlog.ErrUnavailable) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%s: %v, want ErrNoSpace, ErrUnavailable and ENOSPC", what, err)
	} else if !strings.Contains(err.Error(), "no space left on device") || !strings.Contains(err.Error(), "log.db") {
		t.Errorf("%s: %q does not name the file and ENOSPC", what, err)
	}
}

// Our own records never fill a disk so far that nothing can be deleted.
func TestADiskFilledByRecordsCanBeEmptiedByTrimming(t *testing.T) {
	smalldisk.Run(t, smallDisk, func(t *testing.T, dir string) {
		s := mustOpenSmall(t, dir)
		commit(t, s, eventlog.Batch{Partition: 1})
		taken, err := fillWithRecords(t, s)
		if taken < 50 {
			t.Fatalf("only %d records of 100 kB were taken on a disk of %d bytes", taken, smallDisk)
		}
		checkNoSpace(t, "publish", err)
		checkNoSpace(t, "Writable", refusalOf(t, s))
		if err := storetest.Trim(t.Context(), s, 1, taken); err != nil {
			t.Fatalf("trim: %v", err)
		}
		swept(t, s)
		if err := refusalOf(t, s); err != nil {
			t.Errorf("after everything was trimmed: %v", err)
		}
		for range taken / 2 { // the space within the file is used, though the disk is as full as before
			if err := record(t, s, 100_000); err != nil {
				t.Fatalf("publish after everything was trimmed: %v", err)
			}
		}
	})
}

// Another program takes the last byte: reading and deleting go on, and publishing when there is
// space again.
func TestADiskFilledByAnotherProgramRefusesRecordsAlone(t *testing.T) {
	smalldisk.Run(t, smallDisk, func(t *testing.T, dir string) {
		s := mustOpenSmall(t, dir)
		commit(t, s, eventlog.Batch{Partition: 1})
		for range 30 {
			if err := record(t, s, 100_000); err != nil {
				t.Fatal(err)
			}
		}
		free := smalldisk.Fill(t, dir)
		checkNoSpace(t, "publish", record(t, s, 100_000))
		checkNoSpace(t, "Writable", refusalOf(t, s))
		for i := range 50 {
			if err := put(t, s, fmt.Sprint("key ", i)); err != nil {
				t.Fatalf("put %d: %v", i, err)
			}
		}
		// A flush of both: the record is refused, what frees space is not.
		outcomes, err := s.Commit(t.Context(), []eventlog.Entry{
			{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, 1000)}}},
			{Batches: []eventlog.Batch{{Partition: 1, Records: 1, Bytes: make([]byte, 1000)}}, UsesReserve: true},
		})
		if err != nil || outcomes[1].Err != nil {
			t.Fatalf("an entry that uses the reserve: %v, %+v", err, outcomes)
		}
		checkNoSpace(t, "the record beside it", outcomes[0].Err)
		slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 30}}, 1<<30)
		if err != nil || len(slices[0].Batches) != 31 {
			t.Fatalf("read on a full disk: %d batches, %v", len(slices[0].Batches), err)
		}
		if err := storetest.Trim(t.Context(), s, 1, 20); err != nil {
			t.Fatalf("trim on a full disk: %v", err)
		}
		swept(t, s)
		free()
		if err := record(t, s, 100_000); err != nil {
			t.Errorf("publish when there is space again: %v", err)
		}
		if err := refusalOf(t, s); err != nil {
			t.Errorf("Writable when there is space again: %v", err)
		}
	})
}

// A store that was closed, or killed, opens on a disk without a free byte, and can be read and
// trimmed.
func TestAStoreOpensOnAFullDisk(t *testing.T) {
	smalldisk.Run(t, smallDisk, func(t *testing.T, dir string) {
		s := mustOpenSmall(t, dir)
		commit(t, s, eventlog.Batch{Partition: 1})
		for range 30 {
			if err := record(t, s, 100_000); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		free := smalldisk.Fill(t, dir)
		again := mustOpenSmall(t, dir)
		slices, err := again.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 30}}, 1<<30)
		if err != nil || len(slices[0].Batches) != 30 {
			t.Fatalf("read on a full disk: %d batches, %v", len(slices[0].Batches), err)
		}
		checkNoSpace(t, "publish", record(t, again, 100_000))
		checkNoSpace(t, "Writable", refusalOf(t, again))
		free()
		if err := record(t, again, 100_000); err != nil {
			t.Errorf("publish when there is space again: %v", err)
		}
		if err := again.refill(); err != nil || again.reserved() == 0 {
			t.Errorf("the reserve is %d bytes (%v) when there is space again", again.reserved(), err)
		}
	})
}

// Without a reserve, too, the error says what is wrong.
func TestAStoreThatCannotOpenOnAFullDiskSaysWhy(t *testing.T) {
	smalldisk.Run(t, smallDisk, func(t *testing.T, dir string) {
		s := mustOpenSmall(t, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(s.reservePath()); err != nil {
			t.Fatal(err)
		}
		smalldisk.Fill(t, dir)
		_, err := openSmall(t, dir)
		checkNoSpace(t, "open", err)
	})
}
