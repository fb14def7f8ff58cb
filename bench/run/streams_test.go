package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/workload"
)

// Streams that writers share, streams of their own, and a projection; by the library and over HTTP.
func TestStreamsAreChecked(t *testing.T) {
	for _, name := range []string{"null", "weir-sqlite", "pg-plain"} {
		for _, door := range []workload.Door{"", workload.HTTP} {
			for _, streams := range []int{1, 16} {
				for _, expect := range []workload.Expect{"", workload.Any} {
					if name == "pg-plain" && (streams > 1 || expect == workload.Any) {
						continue // a server for each is dear
					}
					if name == "weir-sqlite" && (streams > 1) != (expect == "") {
						continue
					}
					t.Run(fmt.Sprint(name, door, streams, expect), func(t *testing.T) {
						t.Parallel()
						w := load(workload.Streams, 300)
						w.Batch, w.Streams, w.Door, w.Expect, w.Follow, w.Payload = 1, streams, door, expect, true, workload.Price
						w.Phases.Measure, w.Phases.Drain = time.Second, time.Minute
						result, _ := measure(t, name, w)
						for _, c := range result.Cells {
							// Acknowledged events were read back, and projected.
							if !c.Verdict.Clean() || c.Verdict.Acked == 0 || c.Verdict.Delivered < 2*c.Verdict.Acked {
								t.Errorf("%+v, %s", c.Verdict, c.Void)
							}
							if f := c.Figures; f != nil && (f.EndToEnd == nil || (f.Projected != nil) != (door == workload.HTTP)) {
								t.Errorf("end to end %v, projected %v", f.EndToEnd, f.Projected)
							}
						}
					})
				}
			}
		}
	}
}

func TestWhatIsThereBeforeIsReadAndReplayed(t *testing.T) {
	for _, name := range []string{"null", "weir-sqlite", "pg-plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := load(workload.Streams, 100)
			w.Follow, w.Fill, w.Phases.Drain = true, 2000, time.Minute
			result, _ := measure(t, name, w)
			for _, c := range result.Cells {
				if !c.Verdict.Clean() || c.Verdict.Acked < 2000 || c.Verdict.Delivered != 3*c.Verdict.Acked {
					t.Fatalf("%+v, %s", c.Verdict, c.Problem())
				}
				if c.Figures == nil {
					continue // the machine was busy
				}
				if r := c.Figures.Readings; r == nil || r.Replay == 0 || r.Short == nil || r.Tail == nil || r.Short.P50 == run.Duration(0) {
					t.Errorf("the readings are %+v", r)
				}
				if text := formats(t, result); strings.Count(text, "a stream of 100") != 2 {
					t.Errorf("the text and the page do not have the readings: %s", text)
				}
			}
		})
	}
}

// A system that takes ten milliseconds to read a stream is read for as long as there is time.
func TestReadingsHaveABound(t *testing.T) {
	t.Parallel()
	w := load(workload.Streams, 100)
	w.Fill, w.Phases.Measure, w.Phases.Drain = 2000, time.Second, time.Minute
	result, _ := measure(t, "liar-dawdles", w)
	f := result.Cells[0].Figures
	if f == nil || f.Readings == nil {
		t.Fatalf("%+v", result.Cells[0])
	}
	for _, l := range []*run.Latency{f.Readings.Short, f.Readings.Tail} {
		if l.Count == 0 || l.Count >= 1000 || l.P50 < run.Duration(10*time.Millisecond) {
			t.Errorf("it is read %+v", l)
		}
	}
	if text := formats(t, result); !strings.Contains(text, fmt.Sprintf("a stream of 100 (read %d times)", f.Readings.Short.Count)) {
		t.Errorf("the text does not say how often: %s", text)
	}
}

// A replay that does not end in time has lost nothing.
func TestASlowReplayIsNotALoss(t *testing.T) {
	t.Parallel()
	w := load(workload.Streams, 100)
	w.Follow, w.Fill, w.Phases.Measure, w.Phases.Drain = true, 2000, time.Second, time.Second
	result, _ := measure(t, "liar-tires", w)
	if c := result.Cells[0]; !c.Verdict.Clean() || !strings.HasPrefix(c.Void, "too slow: a replay had ") {
		t.Errorf("%+v: %s", c.Verdict, c.Problem())
	}
}

func TestLiarsWithStreamsAreCaught(t *testing.T) {
	for name, says := range map[string]string{"liar-overwrites": "gaps in versions", "liar-forgets": "lost"} {
		for _, door := range []workload.Door{"", workload.HTTP} {
			if name == "liar-overwrites" && door == workload.HTTP {
				continue // the service knows the version, so that its writers hardly conflict
			}
			t.Run(fmt.Sprint(name, door), func(t *testing.T) {
				t.Parallel()
				w := load(workload.Streams, 0)
				w.Batch, w.Streams, w.Follow, w.Door, w.Payload = 1, 1, name == "liar-forgets", door, workload.Price
				w.Phases.Measure = time.Second
				result, clean := measure(t, name, w)
				if clean || len(result.Cells) != 1 || !strings.Contains(result.Cells[0].Problem(), says) || result.Cells[0].Figures != nil {
					t.Errorf("the cells are %+v; one should say %q", result.Cells, says)
				}
			})
		}
	}
}
