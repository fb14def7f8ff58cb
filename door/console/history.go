package console

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// The plots show historyLasts of the past, a point for each processEvery. What is read from the
// store is read each storeEvery, and when somebody looks, but no more often than each storeLeast.
const (
	historyLasts = time.Hour
	processEvery = 5 * time.Second
	storeEvery   = time.Minute
	storeLeast   = 5 * time.Second
	pointsMax    = int(historyLasts / processEvery)
)

// point is what was measured at one time. Counters are as they stood, not rates.
type point struct {
	at                            time.Time
	records, bytes, fetched, errs float64 // appended records and bytes, bytes read, errors of the store
	flushes, flushSeconds         float64
	slow                          []bucket // of flushes, by duration
}

// bucket counts what took at most upTo seconds.
type bucket struct{ upTo, count float64 }

// named is a number that a metric has for one name, and in one state.
type named struct {
	Name, State string
	Value       float64
}

// seen is what was read from the store last.
type seen struct {
	at                                                           time.Time
	lag, members, messages, oldest, projectionLag, projectionAge []named
	delayed, groups, queues                                      float64
}

// history keeps what the plots show, in memory: measuring costs no call of the store.
type history struct {
	process, store prometheus.Gatherer

	looking sync.Mutex // held while the store is asked

	mu     sync.Mutex // guards all below
	points []point    // the newest last
	last   seen
}

func newHistory(process, store prometheus.Gatherer) *history {
	return &history{process: process, store: store}
}

func (h *history) run(ctx context.Context) error {
	tick := time.NewTicker(processEvery)
	defer tick.Stop()
	for {
		h.measure(time.Now())
		h.look(storeEvery)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// measure adds a point.
func (h *history) measure(now time.Time) {
	if h.process == nil {
		return
	}
	families, err := h.process.Gather()
	if err != nil && len(families) == 0 {
		return
	}
	p := point{at: now}
	for _, f := range families {
		switch f.GetName() {
		case "weir_appended_records_total":
			p.records = total(f, "", "")
		case "weir_appended_bytes_total":
			p.bytes = total(f, "", "")
		case "weir_fetched_bytes_total":
			p.fetched = total(f, "", "")
		case "weir_store_errors_total":
			p.errs = total(f, "", "")
		case "weir_flush_seconds":
			for _, m := range f.GetMetric() {
				p.flushes, p.flushSeconds = float64(m.GetHistogram().GetSampleCount()), m.GetHistogram().GetSampleSum()
				for _, b := range m.GetHistogram().GetBucket() {
					p.slow = append(p.slow, bucket{b.GetUpperBound(), float64(b.GetCumulativeCount())})
				}
			}
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.points = append(h.points, p); len(h.points) > pointsMax {
		h.points = slices.Delete(h.points, 0, len(h.points)-pointsMax)
	}
}

// look returns what was read from the store, not longer ago than age if the store answers. While
// one caller asks the store, others get what was read before.
func (h *history) look(age time.Duration) seen {
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	if h.store == nil || time.Since(last.at) < age || !h.looking.TryLock() {
		return last
	}
	defer h.looking.Unlock()
	families, err := h.store.Gather()
	if err != nil && len(families) == 0 {
		return last
	}
	next := seen{at: time.Now()}
	for _, f := range families {
		switch f.GetName() {
		case "weir_group_lag_records":
			next.lag = byName(f, "group", "")
		case "weir_group_members":
			next.members = byName(f, "group", "")
		case "weir_queue_messages":
			next.messages = byName(f, "queue", "state")
		case "weir_queue_oldest_ready_seconds":
			next.oldest = byName(f, "queue", "")
		case "weir_queue_delayed_messages":
			next.delayed = total(f, "", "")
		case "weir_projection_lag_records":
			next.projectionLag = byName(f, "projection", "run")
		case "weir_projection_behind_seconds":
			next.projectionAge = byName(f, "projection", "run")
		case "weir_groups":
			next.groups = total(f, "", "")
		case "weir_queues":
			next.queues = total(f, "", "")
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = next
	return next
}

// series are the columns of the plots: times in seconds since 1970, and a rate or a duration for
// each. A number that is not known is null.
type series struct {
	Times   []int64    `json:"t"`
	Records []*float64 `json:"records"` // appended a second
	Bytes   []*float64 `json:"bytes"`
	Fetched []*float64 `json:"fetched"`
	Flush   []*float64 `json:"flush"` // 99th percentile of a flush, in ms
}

// series returns the last hour as rates.
func (h *history) series() series {
	h.mu.Lock()
	defer h.mu.Unlock()
	var s series
	for i := 1; i < len(h.points); i++ {
		a, b := h.points[i-1], h.points[i]
		seconds := b.at.Sub(a.at).Seconds()
		if seconds <= 0 {
			continue
		}
		rate := func(from, to float64) *float64 { r := max(0, to-from) / seconds; return &r }
		s.Times = append(s.Times, b.at.Unix())
		s.Records = append(s.Records, rate(a.records, b.records))
		s.Bytes = append(s.Bytes, rate(a.bytes, b.bytes))
		s.Fetched = append(s.Fetched, rate(a.fetched, b.fetched))
		s.Flush = append(s.Flush, slowest(a.slow, b.slow))
	}
	return s
}

// slowest returns the 99th percentile in milliseconds of what came between two points: the upper
// bound of the bucket that has the percentile. nil: nothing came, or it is above all buckets.
func slowest(before, after []bucket) *float64 {
	if len(before) != len(after) || len(after) == 0 {
		return nil
	}
	all := after[len(after)-1].count - before[len(before)-1].count
	if all <= 0 {
		return nil
	}
	for i := range after {
		if after[i].count-before[i].count >= 0.99*all {
			ms := 1000 * after[i].upTo
			return &ms
		}
	}
	return nil
}

// total adds up a metric, of all labels or of those with this one.
func total(f *dto.MetricFamily, label, value string) (sum float64) {
	for _, m := range f.GetMetric() {
		if label == "" || labelOf(m, label) == value {
			sum += valueOf(m)
		}
	}
	return sum
}

// byName adds up a metric by the name and the state that its labels say; the largest first.
func byName(f *dto.MetricFamily, name, state string) []named {
	sums := map[[2]string]float64{}
	for _, m := range f.GetMetric() {
		key := [2]string{labelOf(m, name)}
		if state != "" {
			key[1] = labelOf(m, state)
		}
		sums[key] += valueOf(m)
	}
	all := make([]named, 0, len(sums))
	for key, v := range sums {
		all = append(all, named{key[0], key[1], v})
	}
	slices.SortFunc(all, func(a, b named) int {
		switch {
		case a.Value > b.Value:
			return -1
		case a.Value < b.Value:
			return 1
		case a.Name < b.Name || a.Name == b.Name && a.State < b.State:
			return -1
		}
		return 1
	})
	return all
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.GetCounter().GetValue()
	case m.Gauge != nil:
		return m.GetGauge().GetValue()
	}
	return m.GetUntyped().GetValue()
}
