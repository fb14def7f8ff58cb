package run_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// temporary is the directory for temporary files of a test. Others may look into it: databases run
// as users of their own.
func temporary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "keep-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", dir)
	return dir
}

// What is kept is there, and its database has ended; what is not is gone.
func TestFilesAreKeptIfThatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		system string
		door   workload.Door
		has    string // a file of the system
	}{
		{"weir-sqlite", "", "weir.db"},
		{"pg-plain", "", "postgres/data/PG_VERSION"},
		{"weir-postgres", workload.HTTP, "postgres/data/PG_VERSION"}, // in a process of its own
		{"weir-mysql", "", "mysql/data/ibdata1"},
		{"weir-s3", "", "s3/buckets"},
	} {
		for _, keep := range []bool{true, false} {
			t.Run(fmt.Sprint(c.system, c.door, keep), func(t *testing.T) {
				dir := temporary(t)
				s, err := system.Find(c.system)
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Missing(); err != nil {
					t.Skip(err)
				}
				w := load(workload.Streams, 100)
				w.Batch, w.Payload, w.Door, w.Phases.Measure, w.Phases.Drain = 1, workload.Price, c.door, time.Second, time.Minute
				var told bytes.Buffer
				result, clean, err := run.Plan{Systems: []system.System{s}, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Shipped}, Runs: 1, Seed: 1, Keep: keep}.Run(t.Context(), &told)
				if err != nil || !clean {
					t.Fatal(told.String(), err)
				}
				kept := result.Cells[0].Kept
				if says := strings.Contains(told.String(), "its files are in "+dir); says != keep || (kept != "") != keep {
					t.Errorf("it says that the files are in %q: %s", kept, told.String())
				}
				has, err := filepath.Glob(filepath.Join(dir, "weir-bench-*", c.has))
				if err != nil || (len(has) == 1) != keep {
					t.Errorf("the files are %v, %v", has, err)
				}
				if _, err := os.Stat(filepath.Join(kept, "postgres/data/postmaster.pid")); err == nil && keep {
					t.Error("its PostgreSQL still runs")
				}
				left, err := filepath.Glob(filepath.Join(dir, "weir-*-[0-9]*[0-9][0-9]")) // of locks of ports something stays
				if err != nil || !keep && len(left) > 0 {
					t.Errorf("files are left: %v, %v", left, err)
				}
			})
		}
	}
}
