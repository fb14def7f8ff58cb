package sqlite

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// testStep is a WAL that is soon moved.
const testStep = 4 << 20

func openTest(t *testing.T) *Store {
	t.Helper()
	options := Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), walStep: testStep}
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "log.db"), options)
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
	large := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)}
	small := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 100)}
	commit(t, s, large)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 1 << 20}}, 1<<20); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var longest int64
	for range 40 {
		commit(t, s, large)
		commit(t, s, small)
		longest = max(longest, size(t, s.path+"-wal"))
	}
	stop()
	readers.Wait()
	t.Logf("WAL grew to %d KiB", longest>>10)
	if most := int64(4 * testStep); longest > most {
		t.Errorf("WAL grew to %d bytes, want at most %d", longest, most)
	}
}

// Small commits fill the WAL with pages, not with their bytes.
func TestWALOfSmallCommitsIsMovedToo(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	small := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 100)}
	for range 2 * testStep / (3 * pageSize) {
		commit(t, s, small)
	}
	if got := size(t, s.path+"-wal"); got > 2*walStep {
		t.Errorf("WAL grew to %d bytes, want about %d", got, testStep)
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
		for range 20 {
			commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)})
		}
		for s.keeper.due.Load() == testStep { // until the keeper has tried, and given up for a while
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
	for s.keeper.due.Load() > testStep { // until a checkpoint has succeeded again
		commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)})
	}
}
