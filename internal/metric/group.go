package metric

import (
	"context"
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

// WatchGroups registers metrics that are read when somebody asks for them. Where groups cannot be read, they are left out:
// a stale number would be worse than none.
func WatchGroups(registry prometheus.Registerer, groups func(context.Context) ([]Group, error)) {
	registry.MustRegister(&groupCollector{groups})
}

type groupCollector struct {
	groups func(context.Context) ([]Group, error)
}

var (
	groupMembers = prometheus.NewDesc("weir_group_members",
		"Members of a consumer group. If it changes often, members come and go: look at their session timeouts.", []string{"group"}, nil)
	groupLag = prometheus.NewDesc("weir_group_lag_records",
		"Records that a group has not committed yet. If it grows, the group is slower than the producers: add members, up to the number of partitions.",
		[]string{"group", "topic"}, nil)
)

// Describe names the two metrics.
func (c *groupCollector) Describe(to chan<- *prometheus.Desc) {
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
	for _, g := range groups {
		name := label(g.Name)
		to <- prometheus.MustNewConstMetric(groupMembers, prometheus.GaugeValue, float64(g.Members), name)
		for topic, lag := range g.Lag {
			to <- prometheus.MustNewConstMetric(groupLag, prometheus.GaugeValue, float64(lag), name, label(topic))
		}
	}
}

// label makes any name a label's value. Clients name groups, in whatever bytes they like; Prometheus takes UTF-8 only, and
// MustNewConstMetric would end the process over the rest.
func label(name string) string {
	if utf8.ValidString(name) {
		return name
	}
	return strconv.QuoteToASCII(name)
}
