package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"modernc.org/sqlite"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/storetest"
)

func TestMain(m *testing.M) {
	storetest.Work(open)
	os.Exit(m.Run())
}

func open(ctx context.Context, place string) (eventlog.Store, error) {
	return Open(ctx, place, Options{})
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Harness{
		Place: func(t *testing.T) string { return filepath.Join(t.TempDir(), "deep", "er", "log ?%#.db") },
		Open:  open,
		Backup: func(t *testing.T, place string) func() {
			copied := backup(t, place)
			return func() { // the WAL of the old file is left beside the new one
				if err := os.Rename(copied, place); err != nil {
					t.Fatal(err)
				}
			}
		},
	})
}

// backup copies the store at a path, as sqlite3's VACUUM INTO does, and says where the copy is.
func backup(t *testing.T, path string) string {
	t.Helper()
	c, err := connect(path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	copied := filepath.Join(t.TempDir(), "backup.db")
	if err := c.exec("VACUUM INTO ?", copied); err != nil {
		t.Fatal(err)
	}
	return copied
}

// SQLite's own way to put a backup back writes it into the file as one transaction, under the
// connections of others.
func TestABackupCopiedIntoTheFileIsAnotherIncarnation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	append := func() (eventlog.Offset, error) {
		out, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: 1, Bytes: []byte("x")}}}})
		if err != nil {
			return 0, err
		}
		return out[0].Base[1], out[0].Err
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	if _, err := append(); err != nil {
		t.Fatal(err)
	}
	copied := backup(t, path)
	if _, err := append(); err != nil {
		t.Fatal(err)
	}
	_, mark, err := s.Changes(t.Context(), eventlog.Mark{})
	if err != nil {
		t.Fatal(err)
	}

	into, err := connect(path, "mode=rw")
	if err != nil {
		t.Fatal(err)
	}
	restore, err := into.driver.(interface {
		NewRestore(string) (*sqlite.Backup, error)
	}).NewRestore(copied)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := restore.Step(-1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(restore.Finish(), into.close()); err != nil {
		t.Fatal(err)
	}

	if at, err := append(); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a commit behind it gets offset %d, %v; want ErrRewound", at, err)
	}
	if got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 100}}, 100); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a read behind it returns %+v, %v; want ErrRewound", got, err)
	}
	if _, _, err := s.Changes(t.Context(), mark); !errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("moved, with a mark from before: %v", err)
	}
	if all, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil || len(all) != 1 || all[0].Next != 1 {
		t.Errorf("moved from the beginning: %+v, %v", all, err)
	}
	if at, err := append(); err != nil || at != 1 {
		t.Errorf("a commit after that gets offset %d, %v", at, err)
	}
}

// Reads go on while Changes replaces the connections.
func TestReadsWhileTheFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	append := func(records int32) {
		t.Helper()
		if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}, {Partition: 1, Records: records, Bytes: []byte("x")}}}}); err != nil {
			t.Fatal(err)
		}
	}
	const kept, lost = 3, 1
	append(kept)
	copied := backup(t, path)
	append(lost)
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	var replaced, moving atomic.Bool
	refused := make(chan struct{}, 2*(readersMax+1)) // each reader sends once or twice
	var readers sync.WaitGroup
	for range readersMax + 1 { // one waits for a connection
		readers.Go(func() {
			told := false
			for {
				late := replaced.Load()
				got, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1, MaxBytes: 100}}, 100)
				early := !moving.Load()
				switch {
				case late && errors.Is(err, eventlog.ErrRewound):
					if !told {
						told = true
						refused <- struct{}{}
					}
				case errors.Is(err, eventlog.ErrRewound): // replaced while it was read
				case err != nil:
					t.Errorf("a read: %v", err)
					refused <- struct{}{}
					return
				case got[0].Bounds.Next == kept+lost && !late:
				case got[0].Bounds.Next == kept && !early:
					return
				default:
					t.Errorf("a read, begun after the file was replaced: %t, ended before Moved: %t, returned %+v", late, early, got[0].Bounds)
					refused <- struct{}{}
					return
				}
			}
		})
	}
	if err := os.Rename(copied, path); err != nil {
		t.Fatal(err)
	}
	replaced.Store(true)
	for range readersMax + 1 {
		<-refused
	}
	moving.Store(true)
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

// Whoever puts a backup back in two steps leaves a moment in which there is no file. What is
// committed then would be committed to a file without a name.
func TestNothingIsCommittedToAFileWithoutAName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	s, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("a commit while there is no file: %v", err)
	}
	if _, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1}}, 100); !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, eventlog.ErrRewound) {
		t.Errorf("a read while there is no file: %v", err)
	}
	if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("moved while there is no file: %v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{{Partition: 1}}}}); err != nil {
		t.Errorf("a commit when the same file is back: %v", err)
	}
	if _, err := s.Read(t.Context(), []eventlog.Span{{Partition: 1}}, 100); err != nil {
		t.Errorf("a read when the same file is back: %v", err)
	}
}
