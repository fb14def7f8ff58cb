package sqlite

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/doctor"
	"github.com/weir-log/weir/internal/smalldisk"
)

func examined(t *testing.T, path, name string) doctor.Finding {
	t.Helper()
	findings, err := Examine(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return find(t, findings, name)
}

func find(t *testing.T, findings []doctor.Finding, name string) doctor.Finding {
	t.Helper()
	for _, f := range findings {
		if f.Name == name {
			return f
		}
	}
	t.Fatalf("no finding about %s in %+v", name, findings)
	return doctor.Finding{}
}

// As they are on each connection of weir's, whether the store is in use or not.
func TestExamineReadsTheSettingsThatKeepRecords(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 1})
	check := func(when string) {
		for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "full"} {
			if f := examined(t, s.path(), name); f.Value != want || f.Level != doctor.OK {
				t.Errorf("%s, %s: %+v, want %s", name, when, f, want)
			}
		}
	}
	check("in use")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed")
}

func TestExamineFindsSettingsThatLoseRecords(t *testing.T) {
	s := openTest(t)
	w := <-s.writer.idle
	defer s.writer.give(w)
	for setting, name := range map[string]string{"0": "off", "1": "normal"} {
		if err := w.exec("PRAGMA synchronous = " + setting); err != nil {
			t.Fatal(err)
		}
		findings, err := w.examineDurability()
		if err != nil {
			t.Fatal(err)
		}
		if f := find(t, findings, "synchronous"); f.Value != name || f.Level != doctor.Bad {
			t.Errorf("synchronous=%s is told as %+v", setting, f)
		}
		if err := w.checkSynchronous(); err == nil || !strings.Contains(err.Error(), "would lose acknowledged records") {
			t.Errorf("a store with synchronous=%s would open: %v", setting, err)
		}
	}
	path := filepath.Join(t.TempDir(), "log.db")
	other, err := Open(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	script(t, path, "PRAGMA journal_mode = DELETE")
	if f := examined(t, path, "journal_mode"); f.Value != "delete" || f.Level != doctor.Warn {
		t.Errorf("journal_mode=DELETE is told as %+v", f)
	}
}

func TestExamineFindsATornPartition(t *testing.T) {
	s := openTest(t)
	commit(t, s, eventlog.Batch{Partition: 7}, eventlog.Batch{Partition: 7, Records: 3, Bytes: make([]byte, 100)})
	commit(t, s, eventlog.Batch{Partition: 7, Records: 2, Bytes: make([]byte, 100)})
	if f := examined(t, s.path(), "log"); f.Level != doctor.OK {
		t.Errorf("a whole log: %+v", f)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	script(t, s.path(), "DELETE FROM batch WHERE base_offset = 3")
	if f := examined(t, s.path(), "log"); f.Level != doctor.Bad || !strings.Contains(f.Value, "partition 7") || f.Advice == "" {
		t.Errorf("a log whose last batch is gone: %+v", f)
	}
}

func TestExamineFindsAFileSystemInMemory(t *testing.T) {
	smalldisk.Run(t, smallDisk, func(t *testing.T, dir string) {
		s := mustOpenSmall(t, dir)
		if f := examined(t, s.path(), "file system"); f.Level != doctor.Bad || f.Value != "tmpfs" {
			t.Errorf("a file system in memory: %+v", f)
		}
	})
}

func TestExamineJudgesDisks(t *testing.T) {
	local := disk{free: 100 << 30, total: 200 << 30, system: "ext4"}
	network, full, low := local, local, local
	network.system, network.network = "nfs", true
	full.free, low.free = 1<<20, 1<<30
	for _, c := range []struct {
		what  string
		disk  disk
		err   error
		name  string
		level doctor.Level
	}{
		{"a local disk", local, nil, "file system", doctor.OK},
		{"a local disk", local, nil, "free disk space", doctor.OK},
		{"a file system on the network", network, nil, "file system", doctor.Bad},
		{"a full disk", full, nil, "free disk space", doctor.Bad},
		{"a disk that is nearly full", low, nil, "free disk space", doctor.Warn},
		{"a disk that cannot be asked", disk{}, errors.New("no"), "disk", doctor.Warn},
	} {
		f := find(t, examineDisk(c.disk, c.err), c.name)
		if f.Level != c.level || (f.Advice == "") != (c.level == doctor.OK) {
			t.Errorf("%s: %+v, want level %v", c.what, f, c.level)
		}
	}
}
