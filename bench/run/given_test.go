package run_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/pgtest"
)

// Each system has a database of its own on the server that is there, starts no other server, and
// leaves nothing on it.
func TestASystemUsesThePostgresThatIsGiven(t *testing.T) {
	address := pgtest.URL(t)
	databases := func() string {
		return pgtest.Value(t, address, `SELECT coalesce(string_agg(datname, ' '), '') FROM pg_database WHERE datname LIKE 'weir\_bench\_%'`)
	}
	for _, c := range []struct {
		system string
		kind   workload.Kind
		door   workload.Door
	}{
		{"pg-plain", workload.Queue, ""},
		{"weir-postgres", workload.Log, ""},
		{"weir-postgres", workload.Streams, workload.HTTP}, // in a process of its own
		{"weir-sqlite", workload.Queue, ""},
	} {
		t.Run(fmt.Sprint(c.system, c.kind, c.door), func(t *testing.T) {
			dir := temporary(t)
			s, err := system.Find(c.system)
			if err != nil {
				t.Fatal(err)
			}
			w := load(c.kind, 100)
			w.Batch, w.Take, w.Phases.Measure, w.Phases.Drain = 1, 1, time.Second, time.Minute
			if w.Door = c.door; c.door != "" {
				w.Payload = workload.Price
			}
			p := run.Plan{Systems: []system.System{s}, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Durable}, Runs: 1, Seed: 1, Postgres: address}
			var result run.Result
			var clean bool
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				result, clean, err = p.Run(t.Context(), io.Discard)
			}()
			used := false
			for running := true; running; {
				select {
				case <-ended:
					running = false
				default:
					used = used || databases() != ""
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			cell, on := result.Cells[0], c.system != "weir-sqlite"
			if used != on {
				t.Errorf("it had a database on the server: %v", used)
			}
			if cell.Given != on || on && (!clean || cell.Ratios(w) != nil) {
				t.Errorf("the cell is %+v: %s", cell, cell.Problem())
			}
			if left := databases(); left != "" {
				t.Errorf("databases are left: %s", left)
			}
			if started, _ := filepath.Glob(filepath.Join(dir, "weir-pgtest-*")); len(started) > 0 {
				t.Errorf("a server was started, too: %v", started)
			}
			if text := formats(t, result); cell.Figures != nil && strings.Contains(text, "written-B/event\n") == on {
				t.Errorf("it has processor time of a server that was not measured: %s", text)
			}
			if _, err := result.Plan.Again(); err == nil || !strings.Contains(err.Error(), "was there already") {
				t.Error(err)
			}
		})
	}
}

func TestACommandHasNoPassword(t *testing.T) {
	null, err := system.Find("null")
	if err != nil {
		t.Fatal(err)
	}
	w := load(workload.Queue, 100)
	w.Phases.Measure, w.Phases.Drain = 100*time.Millisecond, time.Minute
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = []string{"weir-bench", "run", "--url=postgres=postgres://me:secret@db:5432/x?password=secret", "--url", "postgres=postgres://me:secret@db/", "--url", "postgres=host=db password=secret"}
	result, _, err := run.Plan{Systems: []system.System{null}, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Shipped}, Runs: 1, Seed: 1}.Run(t.Context(), io.Discard)
	if want := "weir-bench run --url=postgres=postgres://db:5432/… --url postgres=postgres://db/… --url postgres=…"; err != nil || result.Command != want {
		t.Errorf("the command is %q, %v; want %q", result.Command, err, want)
	}
}
