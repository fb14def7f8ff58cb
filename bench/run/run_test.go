package run_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// measure runs a small workload on a system. Without the system the test is skipped.
func measure(t *testing.T, name string, w workload.Workload) (run.Result, bool) {
	t.Helper()
	s, err := system.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return measureIn(t, s, w, modes(s)...)
}

// measureIn measures in modes of the test's choice.
func measureIn(t *testing.T, s system.System, w workload.Workload, modes ...system.Mode) (run.Result, bool) {
	t.Helper()
	if err := s.Missing(); err != nil {
		t.Skip(err)
	}
	result, clean, err := run.Plan{Systems: []system.System{s}, Workloads: []workload.Workload{w}, Modes: modes, Runs: 1, Seed: 1}.Run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return result, clean
}

func load(kind workload.Kind, rate float64) workload.Workload {
	return workload.Workload{
		Name: "test", Kind: kind, Writers: 8, Partitions: 4, Groups: 2, Members: 1, Workers: 4, Streams: 16, Batch: 4, Take: 4, Backlog: 100_000, Size: 100,
		Rates:  []workload.Rate{{Seconds: rate, Max: rate == 0}},
		Fault:  workload.Fault{Times: 1}, // as a workload that is read has it; without a kind there is none
		Phases: workload.Phases{Warm: 200 * time.Millisecond, Measure: 2 * time.Second, Drain: time.Second},
	}
}

// formats are all that a result is written as.
func formats(t *testing.T, r run.Result) string {
	t.Helper()
	var all bytes.Buffer
	for _, write := range []func(io.Writer, run.Result) error{report.Text, report.HTML, report.Benchstat} {
		if err := write(&all, r); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func TestLiarsAreCaughtByNameAndGetNoFigure(t *testing.T) {
	for _, c := range []struct {
		name, says string
		kind       workload.Kind
	}{
		{"liar-loses", "lost", workload.Log},
		{"liar-loses", "lost", workload.Queue},
		{"liar-repeats", "again", workload.Log},
		{"liar-repeats", "again", workload.Queue},
		{"liar-swaps", "out of order", workload.Log},
		{"liar-skips", "gaps in versions", workload.Streams},
		{"liar-flushes-not", "acks are not flushed", workload.Log},
		{"liar-flushes-not", "acks are not flushed", workload.Queue},
		{"liar-flushes-not", "acks are not flushed", workload.Streams},
		{"liar-never-answers", "unanswered", workload.Log},
	} {
		t.Run(c.name+" "+string(c.kind), func(t *testing.T) {
			t.Parallel()
			result, clean := measure(t, c.name, load(c.kind, 2000))
			if clean {
				t.Error("the run is called clean")
			}
			if len(result.Cells) != 1 || !strings.Contains(result.Cells[0].Problem(), c.says) {
				t.Fatalf("the cells are %+v; one should say %q", result.Cells, c.says)
			}
			if result.Cells[0].Figures != nil {
				t.Error("there are figures in result.json")
			}
			text := formats(t, result)
			if !strings.Contains(text, c.says) || figure.MatchString(text) || strings.Contains(text, "BenchmarkTest") || strings.Contains(text, "<rect") {
				t.Errorf("a format has a figure, or does not say %q:\n%s", c.says, text)
			}
		})
	}
}

// figure is how a table says that everything was delivered.
var figure = regexp.MustCompile(`[0-9] delivered once`)

// A system that stalls is charged for everybody who had to wait, also at the end.
func TestAStallIsInTheTail(t *testing.T) {
	t.Parallel()
	w := load(workload.Log, 2000)
	w.Phases.Measure = 4 * time.Second
	result, _ := measure(t, "liar-stalls", w)
	f := result.Cells[0].Figures
	if f == nil {
		t.Fatalf("the cell is %+v", result.Cells[0])
	}
	const stall = run.Duration(900 * time.Millisecond)
	if f.Call.Max < stall || f.EndToEnd.Max < stall || f.Call.P99 < run.Duration(300*time.Millisecond) {
		t.Errorf("a stall of a second gives %+v, and end to end %+v", f.Call, f.EndToEnd)
	}
}

// The writers of a system that answers late wait, and what they send in between was due while they
// waited. A clock that starts with each call would have one slow call of 500, and a p99 below a
// millisecond.
func TestLateAnswersAreInTheTailWithThoseThatWaitedBehindThem(t *testing.T) {
	for _, kind := range []workload.Kind{workload.Log, workload.Queue} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			w := load(kind, 4000) // of each of the 8 writers a call every 2 ms: 150 are due while it waits
			w.Batch, w.Take = 1, 1
			result, _ := measure(t, "liar-answers-late", w)
			f := result.Cells[0].Figures
			if f == nil {
				t.Fatalf("the cell is %+v", result.Cells[0])
			}
			const late, behind = run.Duration(299 * time.Millisecond), run.Duration(200 * time.Millisecond) // a histogram rounds
			if f.Call.P999 < late || f.Call.Max < late {
				t.Errorf("answers that come 300 ms late give %+v", f.Call)
			}
			if f.Call.P99 < behind || f.EndToEnd.P99 < behind {
				t.Errorf("calls that waited behind late answers give %+v, and end to end %+v", f.Call, f.EndToEnd)
			}
		})
	}
}

// One event of a million is named. How much time is left for reading decides only how long the test
// takes.
func TestOneLostEventOfAMillionIsNamed(t *testing.T) {
	w := load(workload.Log, 1_000_000)
	w.Writers, w.Batch, w.Size = 1, 1000, 32
	w.Phases.Warm, w.Phases.Measure = 0, 1100*time.Millisecond // whatever is due then is sent: 1,100 calls
	const marker = 1
	lost := fmt.Sprintf("1 lost: event %d of writer 0 was acknowledged, and group group-", 1_000_000-marker-1)
	for ; ; w.Phases.Drain *= 2 {
		result, clean := measure(t, "liar-loses-one", w)
		c := result.Cells[0]
		if slow := strings.Contains(c.Problem(), "too slow") || c.Verdict.Unanswered > 0; slow && w.Phases.Drain < time.Minute {
			continue
		}
		if want := int64(1_100_000 + marker); clean || c.Verdict.Lost != 1 || c.Verdict.Acked != want || c.Verdict.Delivered != 2*(want-1) {
			t.Errorf("clean is %v, and the verdict %+v", clean, c.Verdict)
		}
		if text := formats(t, result); strings.Count(text, lost) < 2 || figure.MatchString(text) {
			t.Errorf("a format has a figure, or does not say %q:\n%s", lost, text)
		}
		return
	}
}

func TestAnHonestSystemIsClean(t *testing.T) {
	for _, kind := range []workload.Kind{workload.Log, workload.Queue, workload.Streams} {
		for _, name := range []string{"null", "weir-sqlite"} {
			for _, rate := range []float64{0, 1000} {
				t.Run(fmt.Sprint(name, kind, rate), func(t *testing.T) {
					t.Parallel()
					w := load(kind, rate)
					w.Phases.Measure, w.Phases.Drain = 500*time.Millisecond, time.Minute // all that was sent is read, however slow the machine is
					result, _ := measure(t, name, w)
					for _, c := range result.Cells {
						if !c.Verdict.Clean() || c.Verdict.Acked == 0 || c.Verdict.Delivered < c.Verdict.Acked {
							t.Errorf("%+v, %s", c.Verdict, c.Void)
						}
						if c.Figures != nil && (c.Figures.Call == nil) != (rate == 0) {
							t.Errorf("it has latencies, or none: %+v", c.Figures)
						}
					}
				})
			}
		}
	}
}

// Workers that are slower than the load have lost nothing; they get no figure either.
func TestASlowSystemIsVoidAndNoLiar(t *testing.T) {
	t.Parallel()
	w := load(workload.Queue, 2000)
	w.Batch, w.Take, w.Phases.Measure, w.Phases.Drain = 1, 1, time.Second, 100*time.Millisecond
	result, _ := measure(t, "liar-dawdles", w)
	if c := result.Cells[0]; !c.Verdict.Clean() || !strings.Contains(c.Problem(), "too slow") || c.Figures != nil {
		t.Errorf("the cell is %q: %+v", c.Problem(), c)
	}
}

func TestASystemThatCannotDoItIsNotRun(t *testing.T) {
	result, clean := measure(t, "weir-sqlite+work", load(workload.Streams, 100))
	for _, c := range result.Cells {
		if !clean || c.Problem() != "not run: weir-sqlite+work has no streams" || c.Figures != nil {
			t.Errorf("clean is %v, and the cell is %q", clean, c.Problem())
		}
	}
}

func TestADurableCellHasItsRatios(t *testing.T) {
	s, err := system.Find("weir-sqlite")
	if err != nil {
		t.Fatal(err)
	}
	w := load(workload.Log, 100)
	result, _ := measureIn(t, s, w, system.Durable)
	c := result.Cells[0]
	if c.Figures == nil {
		t.Skip("this disk flushes too irregularly to be measured: " + c.Problem())
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{`"answers_per_flush":`, `"share_of_flushed_bytes":`, `"answer_p50_in_flushes":`} {
		if !strings.Contains(string(encoded), says) {
			t.Errorf("result.json does not have %s: %s", says, encoded)
		}
	}
}

func TestAResultIsReadAgain(t *testing.T) {
	result, _ := measure(t, "null", load(workload.Queue, 1000))
	encoded, err := json.Marshal(result)
	if err != nil {
		t.Fatal(err)
	}
	var again run.Result
	if err := json.Unmarshal(encoded, &again); err != nil {
		t.Fatal(err)
	}
	if a, b := formats(t, result), formats(t, again); a != b {
		t.Errorf("it was\n%s\nand is\n%s", a, b)
	}
}

// modes are the one in which a test measures a system: shipped, if it has that, because the time of
// a flush says little on a machine that runs tests.
func modes(s system.System) []system.Mode {
	if _, has := s.Modes[system.Shipped]; has {
		return []system.Mode{system.Shipped}
	}
	return []system.Mode{system.Durable}
}
