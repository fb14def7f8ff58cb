package run_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/meter"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// An adapter whose system keeps everything in memory, and answers as late as if it flushed, has no
// figure in mode durable. One that says that its system is elsewhere is believed, and says so.
func TestAnAdapterThatWritesNothingIsNotDurable(t *testing.T) { // not parallel: what other tests write would count
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("%v: the adapter in Python is not measured here", err)
	}
	if err := meter.Adopt(); err != nil {
		t.Skip(err)
	}
	file, err := filepath.Abs("../examples/adapter.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	large := load(workload.Queue, 0)
	large.Size = 64 << 10 // much more than a process writes beside
	service := load(workload.Streams, 0)
	service.Door, service.Payload = workload.HTTP, workload.Price
	const late = `-e 's/^        db.executemany/        import time; time.sleep(0.02); db.executemany/'`
	const elsewhere = `-e 's/"order": "key"/"order": "key", "elsewhere": 1/'`
	for _, c := range []struct {
		name, edits, says string
		load              workload.Workload
	}{
		{"memory", late, "acks are not flushed", large},
		{"elsewhere", elsewhere, "", large},
		{"memory behind a service", ``, "acks are not flushed", service},
		{"elsewhere behind a service", elsewhere, "", service},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.load
			w.Batch, w.Take, w.Phases.Measure, w.Phases.Drain = 1, 1, time.Second, time.Minute
			command := `exec:sed -e 's/os.path.join(r."dir"., "adapter.db")/":memory:"/' ` + c.edits +
				` '` + file + `' > '` + c.name + `.py' && python3 '` + c.name + `.py'`
			s, err := system.Find(command)
			if err != nil {
				t.Fatal(err)
			}
			result, clean := measureIn(t, s, w, system.Durable)
			cell := result.Cells[0]
			if c.says == "" {
				if !clean || cell.Figures == nil || !cell.Given || !strings.Contains(cell.Settings["server"], "elsewhere") {
					t.Errorf("the cell is %q: %+v", cell.Problem(), cell)
				}
				return
			}
			if !run.Seen(t.TempDir()) {
				t.Skip("what processes write to this disk is not counted")
			}
			if clean || cell.Figures != nil || !strings.Contains(cell.Problem(), c.says) {
				t.Errorf("the cell is %q: %+v", cell.Problem(), cell)
			}
		})
	}
}

func TestAGeneratorThatIsLateSaysWhatToDo(t *testing.T) {
	says := run.Slow(2 * time.Hour)
	for _, part := range []string{"the generator was too slow: it was 7200000.0 ms late", "fewer callers", "a longer measurement"} {
		if !strings.Contains(says, part) {
			t.Errorf("it does not say %q: %s", part, says)
		}
	}
	if says := run.Slow(0); says != "" {
		t.Error(says)
	}
}

func TestWhatWasNotWrittenIsNotFlushed(t *testing.T) {
	for _, c := range []struct {
		answers, writes int64 // one after the other
		seen            bool
		says            string
	}{
		{1000, 1000, true, ""},
		{1000, 5000, true, ""}, // others write, too
		{1000, 4, true, "1000 events were acknowledged one after the other, and meanwhile all disks of this machine completed 4 writes"},
		{1000, 4, false, ""}, // a disk that shows nothing
	} {
		if got := run.OneByOne(c.seen, c.answers, c.writes); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for _, c := range []struct {
		took, way, flush time.Duration
		flushed          bool
	}{
		{100 * time.Microsecond, 0, 160 * time.Microsecond, true},
		{30 * time.Microsecond, 0, 160 * time.Microsecond, false},
		{100 * time.Microsecond, 70 * time.Microsecond, 160 * time.Microsecond, false}, // all of it is the way
		{230 * time.Microsecond, 70 * time.Microsecond, 160 * time.Microsecond, true},
	} {
		if got := run.Early(c.took, c.way, c.flush); (got == "") != c.flushed {
			t.Errorf("%+v: %q", c, got)
		}
	}
	for _, c := range []struct {
		bytes, written int64
		seen           bool
		payload        workload.Payload
		fault          workload.FaultKind
		says           string
	}{
		{1000, 1000, true, "", "", ""},
		{1000, 999, true, "", "", "acks are not flushed: 999 bytes were written for 1000 bytes acknowledged"},
		{1000, 0, false, "", "", ""},
		{1000, -1, true, "", "", ""}, // a process does not show what it wrote
		{1000, 100, true, workload.Price, "", ""},
		{1000, 0, true, workload.Price, "", "0 bytes were written"},
		{1000, 0, true, "", workload.Kill, ""}, // what a killed process wrote is gone
	} {
		if got := run.Unwritten(c.seen, c.bytes, c.written, workload.Workload{Payload: c.payload, Fault: workload.Fault{Kind: c.fault}}); (got == "") != (c.says == "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}
