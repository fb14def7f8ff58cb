package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

func openTest(t *testing.T) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func commit(t *testing.T, s *Store, batches ...eventlog.Batch) []eventlog.Offset {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: batches}})
	if err != nil || outcomes[0].Err != nil {
		t.Fatalf("commit: %v, %+v", err, outcomes)
	}
	return outcomes[0].Base
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// Commits large and small follow one another without a pause, and readers are always at work.
func TestWALStaysBoundedUnderLoad(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			for at := eventlog.Offset(0); ctx.Err() == nil; {
				slices, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, From: at, MaxBytes: 1 << 20}})
				if err != nil {
					t.Error(err)
					return
				}
				at += eventlog.Offset(len(slices[0].Batches))
			}
		})
	}
	large := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)}
	small := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 100)}
	var longest int64
	for range 200 {
		commit(t, s, large)
		commit(t, s, small)
		longest = max(longest, size(t, s.path+"-wal"))
	}
	stop()
	readers.Wait()
	t.Logf("WAL grew to %d MiB", longest>>20)
	if most := int64(4 * walStep); longest > most {
		t.Errorf("WAL grew to %d bytes, want at most %d", longest, most)
	}
}

// Small commits fill the WAL with pages, not with their bytes.
func TestWALOfSmallCommitsIsMovedToo(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	small := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 100)}
	for range 2 * walStep / (3 * pageSize) {
		commit(t, s, small)
	}
	if got := size(t, s.path+"-wal"); got > 2*walStep {
		t.Errorf("WAL grew to %d bytes, want about %d", got, walStep)
	}
}

// A reader that stays must not stop commits.
func TestCommitsGoOnBesideALongRead(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	err := s.view(t.Context(), func(r *conn) error {
		before, err := r.partition(1)
		if err != nil {
			return err
		}
		for range 100 {
			commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)})
		}
		after, err := r.partition(1)
		if err == nil && after.next != before.next {
			t.Errorf("the read saw next go from %d to %d", before.next, after.next)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for s.keeper.due.Load() > walStep { // until a checkpoint has succeeded again
		commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)})
	}
}
