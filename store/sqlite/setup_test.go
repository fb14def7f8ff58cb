package sqlite

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestOpenRefusesFilesThatAreNotItsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		make func(t *testing.T, path string)
		want string
	}{
		"another program's": {func(t *testing.T, path string) { script(t, path, "CREATE TABLE theirs (a)") }, "belongs to another program"},
		"marked by another": {func(t *testing.T, path string) { script(t, path, "PRAGMA application_id = 7; CREATE TABLE theirs (a)") }, "application_id is 0x7"},
		"a newer weir's": {func(t *testing.T, path string) {
			script(t, path, fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = 9000; CREATE TABLE partition (a)", applicationID))
		}, "version 9000 is there, and this weir supports versions up to"},
		"UTF-16": {func(t *testing.T, path string) {
			script(t, path, "PRAGMA encoding = 'UTF-16'; CREATE TABLE a (a); DROP TABLE a")
		}, "UTF-16le"},
		"no database": {func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(strings.Repeat("this is a letter to my mother. ", 300)), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "not a SQLite file"},
		"a directory": {func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "give the path of a file in it"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			c.make(t, path)
			before := contents(t, filepath.Dir(path))
			s, err := Open(t.Context(), path, Options{})
			if err == nil {
				s.Close()
				t.Fatal("it was opened")
			}
			if !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q, want it to name the file and to say %q", err, c.want)
			}
			if after := contents(t, filepath.Dir(path)); after != before {
				t.Errorf("a file that is not ours was changed")
			}
		})
	}
}

// script makes a SQLite file as another program would.
func script(t *testing.T, path, text string) {
	t.Helper()
	c, err := connect(path, "mode=rwc")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.exec(text); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
		t.Fatal(err)
	}
}

// contents returns all that is in the files of a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(&all, "%s: %s\n", path, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestOnlyTheOwnerMayReadTheFiles(t *testing.T) {
	s := openTest(t)
	files, err := os.ReadDir(filepath.Dir(s.path()))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 4 {
		t.Errorf("%d files, want the log, its WAL, its shared memory and its reserve", len(files))
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want -rw-------", f.Name(), info.Mode())
		}
	}
}

// A file whose directory entry is not on disk is gone after a loss of power, and all acknowledged
// records with it.
func TestANewFileAndItsDirectoriesAreSyncedIntoThoseAbove(t *testing.T) {
	top := t.TempDir()
	var synced []string
	options := Options{syncDir: func(dir string) error {
		synced = append(synced, dir)
		return syncDir(dir)
	}}
	path := filepath.Join(top, "a", "b", "log.db")
	s, err := Open(t.Context(), path, options)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if want := []string{top, filepath.Join(top, "a"), filepath.Join(top, "a", "b")}; !slices.Equal(synced, want) {
		t.Errorf("synced %q, want %q", synced, want)
	}
	failing := Options{syncDir: func(string) error { return errors.New("the disk fails") }}
	if _, err := Open(t.Context(), filepath.Join(top, "other.db"), failing); err == nil || !strings.Contains(err.Error(), "the disk fails") {
		t.Errorf("opened although the directory could not be synced: %v", err)
	}
}

func TestManyMayCreateOneStoreAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "log.db")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			s, err := Open(t.Context(), path, Options{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestOldLibrariesAreTold(t *testing.T) {
	for version, want := range map[string]bool{"3.51.3": true, "3.51.2": false, "3.51": true, "3.52": true, "3.9.9": false, "3.100.0": true, "4.0.0": true, "2.99.99": false, "3.51.10": true} {
		if got := atLeast(version, "3.51.3"); got != want {
			t.Errorf("%s counts as 3.51.3 or later: %v, want %v", version, got, want)
		}
	}
}

func TestSettingsKeepAcknowledgedData(t *testing.T) {
	s := openTest(t)
	w := <-s.writer.idle
	defer s.writer.give(w)
	for pragma, want := range map[string]string{
		"journal_mode": "wal", "synchronous": "2", "wal_autocheckpoint": "0", "fullfsync": "1", "checkpoint_fullfsync": "1",
		"application_id": fmt.Sprint(applicationID), "user_version": fmt.Sprint(len(scripts())), "page_size": fmt.Sprint(pageSize),
	} {
		if got, err := w.text("PRAGMA " + pragma); err != nil || got != want {
			t.Errorf("%s is %s (%v), want %s", pragma, got, err, want)
		}
	}
}

// A statement that scans a table says so, with SCAN, in the comment above it.
func TestStatementsSearchAndDoNotScan(t *testing.T) {
	s := openTest(t)
	w := <-s.writer.idle
	defer s.writer.give(w)
	files, err := filepath.Glob("sql/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		err = w.query("EXPLAIN QUERY PLAN "+string(text), func(row []driver.Value) error {
			step := row[3].(string)
			if strings.HasPrefix(step, "SCAN") && !strings.Contains(string(text), step) {
				t.Errorf("%s: its plan has %q", file, step)
			}
			if strings.Contains(step, "TEMP B-TREE") {
				t.Errorf("%s: its plan sorts: %q", file, step)
			}
			return nil
		}, int64(1), int64(2), int64(3), int64(4), int64(5), int64(6), int64(7), int64(8))
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}
