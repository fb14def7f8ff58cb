package console

import (
	"math"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/weir-log/weir/use/broker"
)

// Numbers out of metrics.

// countersOf reads the counters of this process.
func countersOf(process prometheus.Gatherer) (c broker.Counters, err error) {
	if process == nil {
		return c, nil
	}
	families, err := process.Gather()
	if err != nil && len(families) == 0 {
		return c, err
	}
	for _, f := range families {
		switch f.GetName() {
		case "weir_appended_records_total":
			c.Records = total(f, "", "")
		case "weir_appended_bytes_total":
			c.Bytes = total(f, "", "")
		case "weir_fetched_bytes_total":
			c.Fetched = total(f, "", "")
		case "weir_flush_seconds":
			c.Flushes = bucketsOf(f)
		case "weir_delivery_seconds":
			c.Deliveries = bucketsOf(f)
		}
	}
	return c, nil
}

func bucketsOf(f *dto.MetricFamily) (all []broker.Bucket) {
	for _, m := range f.GetMetric() {
		for _, b := range m.GetHistogram().GetBucket() {
			all = append(all, broker.Bucket{UpTo: b.GetUpperBound(), Count: float64(b.GetCumulativeCount())})
		}
		all = append(all, broker.Bucket{UpTo: math.MaxFloat64, Count: float64(m.GetHistogram().GetSampleCount())})
	}
	return all
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
