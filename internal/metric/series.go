package metric

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// seriesMax bounds the series of each metric about groups, queues, categories or projections:
// clients create as many of these as they like.
const seriesMax = 500

// series is one series of a metric: its labels and its value.
type series struct {
	value  int64
	labels []string
}

// largest returns the seriesMax largest series, which alerts are about. Equal values are ordered by
// their labels, so that each scrape has the same series.
func largest(all []series) []series {
	if len(all) <= seriesMax {
		return all
	}
	slices.SortFunc(all, func(a, b series) int {
		return cmp.Or(cmp.Compare(b.value, a.value), slices.Compare(a.labels, b.labels))
	})
	return all[:seriesMax]
}

// label makes any name a label value. Clients name groups, in any bytes; Prometheus accepts only
// UTF-8, and MustNewConstMetric would end the process on other bytes.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
