package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
)

// POSIX locks are a process's: it loses all that it has on a file when it closes any descriptor of
// it. Without SQLite's lock another process, such as a sqlite3 shell that ends, takes the WAL for
// one that nobody uses, and deletes it.
func TestNothingInAProcessDropsTheLockOfItsFile(t *testing.T) {
	for name, do := range map[string]func(t *testing.T, file, link, other string) error{
		"a doctor":                 func(t *testing.T, file, link, other string) error { return examine(t, file) },
		"a doctor through a link":  func(t *testing.T, file, link, other string) error { return examine(t, link) },
		"a doctor by another name": func(t *testing.T, file, link, other string) error { return examine(t, other) },
		"a file that is created":   func(t *testing.T, file, link, other string) error { return create(file, syncDir) },
		"a second store": func(t *testing.T, file, link, other string) error {
			again, err := Open(t.Context(), link, Options{})
			if err != nil {
				return err
			}
			return again.Close()
		},
		"a store of another name": func(t *testing.T, file, link, other string) error {
			again, err := Open(t.Context(), other, Options{})
			if err != nil {
				return err
			}
			return again.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, file, link := linked(t)
			other := filepath.Join(filepath.Dir(link), "other.db")
			if err := os.Link(file, other); err != nil {
				t.Skip(err)
			}
			commit(t, s, eventlog.Batch{Partition: 1})
			if !locked(t, file) {
				t.Fatal("an open store has no lock on its file")
			}
			if err := do(t, file, link, other); err != nil {
				t.Fatal(err)
			}
			if !locked(t, file) {
				t.Error("the lock is gone")
			}
		})
	}
}

func examine(t *testing.T, path string) error {
	_, err := Examine(t.Context(), path)
	return err
}

// locked reports whether this process has SQLite's shared lock on a file. The range is SHARED_FIRST
// of os.h.
func locked(t *testing.T, path string) bool {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(strings.Split(string(locks), "\n"), func(line string) bool {
		f := strings.Fields(line)
		return len(f) == 8 && f[1] == "POSIX" && f[4] == fmt.Sprint(os.Getpid()) && f[6] == "1073741826" &&
			strings.HasSuffix(f[5], fmt.Sprintf(":%d", inode(info)))
	})
}
