package console

import (
	"math"
	"testing"
	"time"

	"github.com/weir-log/weir/use/broker"
)

// done is what a process has done since it started: so many records, in flushes of 10 or 100 ms.
func done(records, quick, slow float64) broker.Counters {
	return broker.Counters{Records: records, Bytes: 10 * records, Flushes: []broker.Bucket{{UpTo: 0.01, Count: quick}, {UpTo: 0.1, Count: quick + slow}}}
}

func TestPlotsAreOfAllProcesses(t *testing.T) {
	h := NewHistory(nil, nil)
	now := time.Unix(1_800_000_000, 0)
	for _, told := range []map[string]broker.Counters{
		{ownLife: done(1000, 10, 0)},
		{ownLife: done(1050, 20, 0), "b": done(9_000_000, 1, 1)}, // what b did before is not of these seconds
		{ownLife: done(1100, 30, 0), "b": done(9_000_500, 2, 2)},
		{ownLife: done(1150, 40, 0), "b": done(9_000_500, 2, 2)}, // b has not put its key again
		{ownLife: done(1200, 50, 0)},                             // b has died
		{ownLife: done(1250, 60, 0), "c": done(700, 0, 0)},       // and begins anew
		{ownLife: done(1300, 60, 0), "c": done(800, 0, 0)},
	} {
		h.add(now, told)
		now = now.Add(5 * time.Second)
	}
	s := h.series()
	for i, want := range []struct{ records, flush float64 }{{10, 10}, {110, 100}, {10, 10}, {10, 10}, {10, 10}, {30, 0}} {
		if got := *s.Records[i]; got != want.records {
			t.Errorf("at %d: %v records a second, want %v", i, got, want.records)
		}
		if got := *s.Bytes[i]; got != 10*want.records {
			t.Errorf("at %d: %v bytes a second, want %v", i, got, 10*want.records)
		}
		if got := s.Flush[i]; want.flush == 0 && got != nil || want.flush != 0 && (got == nil || *got != want.flush) {
			t.Errorf("at %d: 99 %% of the flushes within %v, want %v", i, got, want.flush)
		}
	}
}

// What was returned does not change while points are added: others encode it meanwhile.
func TestCountersStayWhatTheyWere(t *testing.T) {
	h := NewHistory(nil, nil)
	now := time.Unix(1_800_000_000, 0)
	add := func(n float64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.add(now, map[string]broker.Counters{ownLife: done(n, n, 0)})
		now = now.Add(processEvery)
	}
	add(0)
	for n := range 40 {
		was := h.Counters()
		add(float64(n + 1))
		if was.Records != float64(n) || was.Flushes[0].Count != float64(n) {
			t.Fatalf("after %d points the counters of before are %+v", n+2, *was)
		}
	}
}

func TestTheTimeThatARebuildNeedsIsEstimated(t *testing.T) {
	h, at := NewHistory(nil, nil), time.Unix(1_800_000_000, 0)
	for i, c := range []struct {
		lag  float64
		want time.Duration // 0: not known
	}{{1000, 0}, {900, 90 * time.Second}, {800, 80 * time.Second}, {0, 0}, {500, 40 * time.Second}} {
		h.last = seen{at: at, projectionLag: []named{{Name: "p", State: "next", Value: c.lag}, {Name: "q", State: "next", Value: 1}}}
		h.lags = append(h.lags, h.last)
		at = at.Add(10 * time.Second)
		left := h.left("p", "next")
		if got := orNothing(left); got != c.want {
			t.Errorf("%d: %v, want %v", i, got, c.want)
		}
		if left := h.left("q", "next"); left != nil {
			t.Errorf("%d: of what does not change: %v", i, *left)
		}
	}
}

func orNothing(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}

func TestTopicsHaveARate(t *testing.T) {
	h, at, ends := NewHistory(nil, nil), time.Unix(1_800_000_000, 0), int64(0)
	h.topics = func() map[string]topicSize {
		return map[string]topicSize{"orders": {Offsets: ends / 2, Ends: ends, Bytes: 7}}
	}
	for range 40 {
		h.size(at)
		at, ends = at.Add(5*time.Second), ends+50
	}
	line := h.topicLines()["orders"]
	if line.Rate == nil || *line.Rate != 10 || line.Bytes != 7 {
		t.Errorf("%+v, %v a second, want 10", line, line.Rate)
	}
	if over := h.sizes[len(h.sizes)-1].at.Sub(h.sizes[0].at); over > rateOver+sizeEvery {
		t.Errorf("sizes of %v are kept", over)
	}
}

func TestWhatIsLongerThanAllBucketsCounts(t *testing.T) {
	before := []broker.Bucket{{UpTo: 1, Count: 0}, {UpTo: 16, Count: 0}, {UpTo: math.MaxFloat64, Count: 0}}
	after := []broker.Bucket{{UpTo: 1, Count: 50}, {UpTo: 16, Count: 50}, {UpTo: math.MaxFloat64, Count: 100}}
	if got := slowest(before, after); got == nil || *got != 16000 {
		t.Errorf("%v, want the highest bound, 16000 ms", got)
	}
}

func TestARebuildShowsItsProgress(t *testing.T) {
	run := &runInfo{Lag: 30, Categories: []string{"a", "b"}}
	run.measure(map[string]topicLine{"a": {topicSize: topicSize{Offsets: 90}}, "b": {topicSize: topicSize{Offsets: 30}}})
	if run.Handled == nil || *run.Handled != 75 {
		t.Errorf("%v, want 75 %%", run.Handled)
	}
}
