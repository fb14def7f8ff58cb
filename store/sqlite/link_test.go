package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
)

// linked opens a store through a symbolic link, and returns the paths of its file and of the link.
func linked(t *testing.T) (s *Store, file, link string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link = filepath.Join(dir, "disk", "log.db"), filepath.Join(dir, "link.db")
	if s, err = Open(t.Context(), file, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), os.Symlink(filepath.Join("disk", "log.db"), link)); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(t.Context(), link, Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, file, link
}

func TestWhatBelongsToAStoreIsBesideItsFileAndNotBesideALink(t *testing.T) {
	_, file, link := linked(t)
	for _, suffix := range []string{"-wal", "-shm", "-reserve"} {
		if _, err := os.Stat(file + suffix); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(link + suffix); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, want that there is none", link+suffix, err)
		}
	}
	if f := examined(t, link, "WAL size"); f.Value == "" {
		t.Error("the doctor does not find the WAL")
	}
}

// The backup has one record, the store has two.
func TestABackupThatReplacesTheFileOfALinkIsNotUndoneByTheOldWAL(t *testing.T) {
	for name, replace := range map[string]func(backup, file, link string) error{
		"the file": func(backup, file, link string) error { return os.Rename(backup, file) },
		"the link": func(backup, file, link string) error { return os.Rename(backup, link) },
		"where the link leads": func(backup, file, link string) error {
			return errors.Join(os.Symlink(backup, link+"2"), os.Rename(link+"2", link))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, file, link := linked(t)
			if _, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil {
				t.Fatal(err)
			}
			one := eventlog.Batch{Partition: 1, Records: 1, Bytes: []byte("x")}
			commit(t, s, eventlog.Batch{Partition: 1}, one)
			copied := backup(t, file)
			commit(t, s, one)
			if err := replace(copied, file, link); err != nil {
				t.Fatal(err)
			}
			if outcomes, err := s.Commit(t.Context(), []eventlog.Entry{{Batches: []eventlog.Batch{one}}}); !errors.Is(err, eventlog.ErrRewound) {
				t.Errorf("a commit gets %+v, %v; want ErrRewound", outcomes, err)
			}
			check := func(s *Store, want eventlog.Offset) {
				t.Helper()
				if all, _, err := s.Changes(t.Context(), eventlog.Mark{}); err != nil || len(all) != 1 || all[0].Next != want {
					t.Fatalf("the store has %+v, %v; want one partition with %d records", all, err, want)
				}
			}
			check(s, 1)
			commit(t, s, one)
			check(s, 2)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := Open(t.Context(), link, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			check(again, 2)
		})
	}
}

// The disk of the file may not be mounted: a new file would hide that.
func TestALinkToNothingIsRefused(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink("nothing.db", link); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), link, Options{})
	if err == nil {
		s.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "symbolic link") || !strings.Contains(err.Error(), "nothing.db") {
		t.Errorf("opened a link to nothing: %v", err)
	}
}

// Each name has a WAL of its own.
func TestTheDoctorFindsAFileOfTwoNames(t *testing.T) {
	s := openTest(t)
	if err := os.Link(s.path(), s.path()+"2"); err != nil {
		t.Skip(err)
	}
	if f := examined(t, s.path(), "names"); f.Level != doctor.Bad {
		t.Errorf("%+v", f)
	}
}
