package run_test

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// A system that does not start is void, with the reason, and the others are measured.
func TestASystemThatFailsIsVoidAndTheOthersAreMeasured(t *testing.T) {
	t.Parallel()
	var systems []system.System
	const ends = `exec:read -r hello; echo '{"id":1,"ok":1,"name":"some 7","can":["queue"]}'`
	for _, name := range []string{"exec:false", "null", ends} {
		s, err := system.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		systems = append(systems, s)
	}
	w := load(workload.Queue, 0)
	w.Phases.Measure = time.Second
	result, clean, err := run.Plan{Systems: systems, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Shipped}, Runs: 1, Seed: 1}.Run(t.Context(), io.Discard)
	if err != nil || clean || len(result.Cells) != 3 {
		t.Fatal(result.Cells, clean, err)
	}
	if c := result.Cells[0]; c.Figures != nil || !strings.Contains(c.Problem(), "void: failed: ") || !strings.Contains(c.Problem(), "the adapter ended") {
		t.Errorf("the cell is %q", c.Problem())
	}
	if c := result.Cells[1]; c.Figures == nil {
		t.Errorf("the cell is %q", c.Problem())
	}
	if c := result.Cells[2]; c.Figures != nil || !strings.Contains(c.Problem(), "void: failed: ") || c.Settings["system"] != "some 7" {
		t.Errorf("the cell is %q: %+v", c.Problem(), c)
	}
}

// What was measured when somebody ends a run is there.
func TestARunThatIsEndedHasWhatWasMeasured(t *testing.T) {
	t.Parallel()
	null, err := system.Find("null")
	if err != nil {
		t.Fatal(err)
	}
	w := load(workload.Queue, 0)
	w.Phases.Measure = 500 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result, clean, err := run.Plan{Systems: []system.System{null}, Workloads: []workload.Workload{w}, Modes: []system.Mode{system.Shipped}, Runs: 100, Seed: 1}.Run(ctx, afterFirst(cancel))
	if err == nil || clean || len(result.Cells) == 0 || len(result.Cells) > 2 || result.Cells[0].Figures == nil {
		t.Error(result.Cells, clean, err)
	}
}

// afterFirst ends a run when it has told of its first cell.
type afterFirst context.CancelFunc

func (f afterFirst) Write(text []byte) (int, error) { f(); return len(text), nil }

// An adapter that somebody wrote is a system like the others.
func TestAnAdapterIsMeasured(t *testing.T) { // not parallel: its adapters write where it runs
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("%v: the adapter in Python is not measured here", err)
	}
	file, err := filepath.Abs("../examples/adapter.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	name := "exec:python3 '" + file + "'"
	for _, kind := range []workload.Kind{workload.Log, workload.Queue, workload.Streams} {
		for _, door := range []workload.Door{"", workload.HTTP} {
			if door == workload.HTTP && kind != workload.Streams {
				continue
			}
			t.Run(fmt.Sprint(kind, door), func(t *testing.T) {
				t.Parallel()
				w := load(kind, 200)
				w.Phases.Measure, w.Phases.Drain = time.Second, time.Minute
				if w.Follow = kind == workload.Streams; w.Follow {
					w.Batch, w.Payload, w.Door = 1, workload.Price, door
				}
				result, _ := measure(t, name, w)
				c := result.Cells[0]
				if !c.Verdict.Clean() || c.Verdict.Acked == 0 || c.Verdict.Delivered < c.Verdict.Acked || c.NotRun != "" {
					t.Errorf("%+v, %s", c.Verdict, c.Problem())
				}
				if !strings.HasPrefix(c.Settings["system"], "SQLite 3") || c.Settings["synchronous"] == "" || c.Settings["adapter"] != strings.TrimPrefix(name, "exec:") {
					t.Errorf("the settings are %v", c.Settings)
				}
			})
		}
	}
	for fault, says := range map[string]string{
		`s/say(id=r\["id"\], \*\*dict/last == 150 or &/`: "lost",
		`s/:= take(r, claim)/:= take(r, claim) * 2/`:     "again",
	} {
		t.Run(says, func(t *testing.T) {
			t.Parallel()
			w := load(map[string]workload.Kind{"lost": workload.Log, "again": workload.Queue}[says], 200)
			w.Batch = 1
			result, clean := measure(t, fmt.Sprintf(`exec:sed '%s' '%s' > broken-%s.py && python3 broken-%s.py`, fault, file, says, says), w)
			if c := result.Cells[0]; clean || c.Figures != nil || !strings.Contains(c.Problem(), says) {
				t.Errorf("the cell is %q: %+v", c.Problem(), c)
			}
		})
	}
}
