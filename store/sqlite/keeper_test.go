package sqlite

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
)

// testStep is a WAL that is soon moved.
const testStep = 4 << 20

func openTest(t *testing.T) *Store {
	t.Helper()
	return openWith(t, Options{})
}

func openWith(t *testing.T, options Options) *Store {
	t.Helper()
	options.Logger, options.walStep = slog.New(slog.NewTextHandler(t.Output(), nil)), testStep
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

// Commits large and small follow one another without a pause, and readers are always at work. The
// keeper never is, as on a machine that has no time for it: then the commits bound the WAL
// themselves.
func TestWALStaysBoundedUnderLoad(t *testing.T) {
	for name, idle := range map[string]bool{"with its keeper": false, "without its keeper": true} {
		t.Run(name, func(t *testing.T) { walStaysBounded(t, idle) })
	}
}

func walStaysBounded(t *testing.T, idle bool) {
	// However slow this machine is, a read is waited for: that one which takes longer makes the WAL
	// grow is TestCommitsGoOnBesideALongRead's.
	s := openWith(t, Options{walTimeout: time.Minute})
	if idle {
		s.keeper.cancel()
		<-s.keeper.ended
	}
	commit(t, s, eventlog.Batch{Partition: 1})
	large := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)}
	small := eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 100)}
	commit(t, s, small) // for readers: large ones take seconds with the race detector
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
	for range 30 {
		commit(t, s, large)
		commit(t, s, small)
		longest = max(longest, size(t, s.path()+"-wal"))
	}
	stop()
	readers.Wait()
	t.Logf("WAL grew to %d KiB", longest>>10)
	if most := int64(walMost*testStep + 2<<20); longest > most { // and what one commit of 1 MiB adds
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
	if got := size(t, s.path()+"-wal"); got > 2*walStep {
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
		if s.keeper.due.Load() == testStep { // 20 MiB were enough to try, and a read holds the WAL
			t.Error("the WAL began anew under a read: it saw nothing of one unchanging picture")
		}
		after, err := r.partition(1)
		if err == nil && after.Next != before.Next {
			t.Errorf("the read saw next go from %d to %d", before.Next, after.Next)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; s.keeper.due.Load() > testStep; n++ { // until a checkpoint has succeeded again
		if n == 100 {
			t.Fatal("100 MiB after the read ended the WAL has not begun anew")
		}
		commit(t, s, eventlog.Batch{Partition: 1, Records: 1, Bytes: make([]byte, 1<<20)})
	}
}
