package run

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-log/weir/bench/workload"
)

// Raw is where the histograms are that a cell's latencies were computed from.
type Raw struct {
	File   string `json:"file,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
	Log    string `json:"log,omitempty"` // the file's text, until it is in one: in HdrHistogram's log format
}

// Tags of the histograms in a log.
const (
	tagCall      = "call"
	tagEndToEnd  = "end_to_end"
	tagDone      = "done"
	tagProjected = "projected"
)

// raw writes the histograms of the latencies that the figures have.
func (m *measurement) raw() (*Raw, error) {
	var text bytes.Buffer
	log := hdrhistogram.NewHistogramLogWriter(&text)
	begin := m.begin.UnixMilli()
	log.SetBaseTime(begin)
	for _, write := range []func() error{
		func() error { return log.OutputComment("[microseconds, since each call was due]") },
		log.OutputLogFormatVersion,
		func() error { return log.OutputBaseTime(begin) },
		func() error { return log.OutputStartTime(begin) },
		log.OutputLegend,
	} {
		if err := write(); err != nil {
			return nil, err
		}
	}
	for _, of := range []struct {
		tag string
		t   *times
	}{{tagCall, m.call}, {tagEndToEnd, m.endToEnd}, {tagDone, m.done}, {tagProjected, m.projectedIn}} {
		of.t.mu.Lock()
		of.t.all.SetTag(of.tag)
		of.t.all.SetStartTimeMs(begin)
		of.t.all.SetEndTimeMs(time.Now().UnixMilli())
		err := log.OutputIntervalHistogram(of.t.all)
		of.t.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return &Raw{Log: text.String()}, nil
}

// Again computes from a cell's raw histograms, and from its seconds, what its figures must be. It
// changes nothing else of them.
func (c Cell) Again(w workload.Workload, raw io.Reader) (f Figures, err error) {
	f = *c.Figures
	of := map[string]**Latency{tagCall: &f.Call, tagEndToEnd: &f.EndToEnd, tagDone: &f.Done, tagProjected: &f.Projected}
	seen := 0
	for reader := hdrhistogram.NewHistogramLogReader(raw); ; seen++ {
		h, err := reader.NextIntervalHistogram()
		if err != nil {
			return f, fmt.Errorf("read the histograms: %w", err)
		}
		if h == nil {
			break
		}
		into, known := of[h.Tag()]
		if !known {
			return f, fmt.Errorf("there is a histogram of %q", h.Tag())
		}
		if *into != nil || h.Tag() == tagProjected { // at rate max there is no latency
			*into = latencyOf(h)
		}
	}
	if seen != len(of) {
		return f, fmt.Errorf("there are %d histograms, and %d were written", seen, len(of))
	}
	if once := c.Rate == (workload.Rate{Once: true}).String(); !once || f.Last > 0 { // older results have none
		f.PerSecond = steady(f.Seconds, w.Phases, once, f.Last)
	}
	if f.Ratios != nil { // an older result has none
		c.Figures = &f
		f.Ratios = c.Ratios(w)
	}
	return f, nil
}

// steady is how many events were acknowledged a second in the measurement. If it has no whole
// second, or each writer made one call, these are all events by the time until the last of them: a
// system that was given more than it takes answers when the measurement is over.
func steady(seconds []int64, ph workload.Phases, once bool, last Duration) float64 {
	n, whole := perSecond(seconds, ph.Warm, ph.Warm+ph.Measure)
	if whole && !once {
		return n
	}
	all := int64(0)
	for _, n := range seconds {
		all += n
	}
	took := time.Duration(last)
	if !once {
		took = max(took, ph.Warm+ph.Measure)
	}
	if took == 0 {
		return 0
	}
	return float64(all) / took.Round(time.Microsecond).Seconds()
}

// perSecond is how many events were acknowledged in the whole seconds between two times; whole is
// false if there are none.
func perSecond(seconds []int64, from, to time.Duration) (n float64, whole bool) {
	from, to = from.Truncate(time.Second), to.Truncate(time.Second)
	for i := int(from / time.Second); i < int(to/time.Second) && i < len(seconds); i++ {
		n += float64(seconds[i])
	}
	return n / max(to-from, time.Second).Seconds(), to > from
}
