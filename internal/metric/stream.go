package metric

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Category is what this process appended to the streams of a category.
type Category struct {
	Name    string
	Appends map[string]int64 // by outcome
}

// WatchCategories registers metrics that come from the function read at each scrape, so that they
// disappear with the categories that they name.
func WatchCategories(registry prometheus.Registerer, read func() []Category) {
	registry.MustRegister(&categoryCollector{read})
}

type categoryCollector struct{ read func() []Category }

var streamAppends = prometheus.NewDesc("weir_stream_appends_total",
	"Appends to streams of a category by outcome (appended, duplicate, conflict, boundary), in this process since its first append there; the 500 largest values. If the share of conflict or boundary grows, several writers decide on the same streams or tags: let one writer decide on each, or use more streams and tags, each with fewer events.",
	[]string{"category", "outcome"}, nil)

// Describe implements prometheus.Collector.
func (c *categoryCollector) Describe(to chan<- *prometheus.Desc) { to <- streamAppends }

// Collect implements prometheus.Collector.
func (c *categoryCollector) Collect(to chan<- prometheus.Metric) {
	var appends []series
	for _, category := range c.read() {
		for outcome, n := range category.Appends {
			appends = append(appends, series{n, []string{label(category.Name), outcome}})
		}
	}
	for _, s := range largest(appends) {
		to <- prometheus.MustNewConstMetric(streamAppends, prometheus.CounterValue, float64(s.value), s.labels...)
	}
}

// Projection is how far a run of a projection has come.
type Projection struct {
	Name   string
	Run    string        // "now" if readers use what it made, "next" if it is to take over
	Lag    int64         // records that are still to be handled
	Behind time.Duration // the age of the oldest of them
}

// WatchProjections registers metrics that come from the function read at each scrape. If read
// fails, they are left out.
func WatchProjections(registry prometheus.Registerer, read func(context.Context) ([]Projection, error)) {
	registry.MustRegister(&projectionCollector{read})
}

type projectionCollector struct {
	read func(context.Context) ([]Projection, error)
}

var (
	projectionLag = prometheus.NewDesc("weir_projection_lag_records",
		"Records that a projection has not handled yet, of the run that readers use (now) and of the one that is to take over (next); the 500 largest values. If now grows, the handler is too slow, has halted, or does not run: see weir projection describe.",
		[]string{"projection", "run"}, nil)
	projectionBehind = prometheus.NewDesc("weir_projection_behind_seconds",
		"Age of the oldest record that a projection has not handled yet, by the event's time; 0 if there is none; the 500 largest values. For the run now: what readers see is at least this old.",
		[]string{"projection", "run"}, nil)
)

// Describe implements prometheus.Collector.
func (c *projectionCollector) Describe(to chan<- *prometheus.Desc) {
	to <- projectionLag
	to <- projectionBehind
}

// Collect implements prometheus.Collector.
func (c *projectionCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsTimeout)
	defer cancel()
	projections, err := c.read(ctx)
	if err != nil {
		return // weir_store_errors_total counts it
	}
	var lags, ages []series
	for _, p := range projections {
		labels := []string{label(p.Name), p.Run}
		lags, ages = append(lags, series{p.Lag, labels}), append(ages, series{p.Behind.Milliseconds(), labels})
	}
	for _, s := range largest(lags) {
		to <- prometheus.MustNewConstMetric(projectionLag, prometheus.GaugeValue, float64(s.value), s.labels...)
	}
	for _, s := range largest(ages) {
		to <- prometheus.MustNewConstMetric(projectionBehind, prometheus.GaugeValue, float64(s.value)/1000, s.labels...)
	}
}
