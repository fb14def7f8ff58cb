package metric

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

// Group is what can be seen of a consumer group.
type Group struct {
	Name    string
	Members int
	Lag     map[string]int64 // records not yet committed, by topic
}

// groupsTimeout bounds what one scrape may cost the store.
const groupsTimeout = 2 * time.Second

// seriesMax bounds the lines of each of the two metrics that are about groups: clients make as many groups and topics as they like.
const seriesMax = 500

// WatchGroups registers metrics that are read when somebody asks for them, so that they go with the groups and topics that they name. Where
// groups cannot be read, they are left out: a stale number would be worse than none.
func WatchGroups(registry prometheus.Registerer, groups func(context.Context) ([]Group, error)) {
	registry.MustRegister(&groupCollector{groups})
}

type groupCollector struct {
	groups func(context.Context) ([]Group, error)
}

var (
	groupCount   = prometheus.NewDesc("weir_groups", "Consumer groups. If it climbs without end, clients invent names: look at weir group list.", nil, nil)
	groupMembers = prometheus.NewDesc("weir_group_members",
		"Members of a consumer group, of the 500 groups with most. If it changes often, members come and go: look at their session timeouts.", []string{"group"}, nil)
	groupLag = prometheus.NewDesc("weir_group_lag_records",
		"Records that a group has not committed yet, of the 500 largest. If it grows, the group is slower than the producers: add members, up to the number of partitions.",
		[]string{"group", "topic"}, nil)
)

// Describe names the metrics.
func (c *groupCollector) Describe(to chan<- *prometheus.Desc) {
	to <- groupCount
	to <- groupMembers
	to <- groupLag
}

// Collect asks for the groups.
func (c *groupCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsTimeout)
	defer cancel()
	groups, err := c.groups(ctx)
	if err != nil {
		return // weir_store_errors_total counts it
	}
	var members, lags []series
	for _, g := range groups {
		members = append(members, series{int64(g.Members), []string{label(g.Name)}})
		for topic, lag := range g.Lag {
			lags = append(lags, series{lag, []string{label(g.Name), label(topic)}})
		}
	}
	to <- prometheus.MustNewConstMetric(groupCount, prometheus.GaugeValue, float64(len(groups)))
	for desc, all := range map[*prometheus.Desc][]series{groupMembers: members, groupLag: lags} {
		for _, s := range largest(all) {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(s.value), s.labels...)
		}
	}
}

// series is one line of a metric.
type series struct {
	value  int64
	labels []string
}

// largest returns those that are shown where there are too many: the largest, which alerts are about. Among equals it is always the same ones.
func largest(all []series) []series {
	if len(all) <= seriesMax {
		return all
	}
	slices.SortFunc(all, func(a, b series) int {
		return cmp.Or(cmp.Compare(b.value, a.value), slices.Compare(a.labels, b.labels))
	})
	return all[:seriesMax]
}

// label makes any name a label's value. Clients name groups, in whatever bytes they like; Prometheus takes UTF-8 only, and
// MustNewConstMetric would end the process over the rest.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
