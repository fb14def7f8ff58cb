package metric

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Group is the state of a consumer group.
type Group struct {
	Name    string
	Members int
	Lag     map[string]int64 // records not yet committed, by topic
}

// groupsTimeout bounds how long one scrape may read from the store.
const groupsTimeout = 2 * time.Second

// WatchGroups registers metrics that come from the function groups at each scrape, so that they
// disappear with the groups and topics that they name. If the function fails, they are left out: an
// old number would be worse than none. If it returns some groups and an error, their lag is left
// out, and weir_group_lag_unknown is 1: one client's hundred thousand offsets hide nobody's
// members.
func WatchGroups(registry prometheus.Registerer, groups func(context.Context) ([]Group, error)) {
	registry.MustRegister(&groupCollector{groups})
}

type groupCollector struct {
	groups func(context.Context) ([]Group, error)
}

var (
	groupCount   = prometheus.NewDesc("weir_groups", "Number of consumer groups. If it grows without end, clients use a new group name each time: see weir group list.", nil, nil)
	groupMembers = prometheus.NewDesc("weir_group_members",
		"Members of a consumer group, for the 500 groups with the most members. If it changes often, members join and leave: check their session timeouts.", []string{"group"}, nil)
	groupLagUnknown = prometheus.NewDesc("weir_group_lag_unknown",
		"1 if the lag of groups could not be read in time for this scrape, and is left out. Groups have committed very many offsets, or the store is slow.", nil, nil)
	groupLag = prometheus.NewDesc("weir_group_lag_records",
		"Records of a topic that a group has not committed yet; the 500 largest values. If it grows, the group is slower than the producers: add members, up to the number of partitions.",
		[]string{"group", "topic"}, nil)
)

// Describe implements prometheus.Collector.
func (c *groupCollector) Describe(to chan<- *prometheus.Desc) {
	to <- groupCount
	to <- groupMembers
	to <- groupLag
	to <- groupLagUnknown
}

// Collect implements prometheus.Collector.
func (c *groupCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsTimeout)
	defer cancel()
	groups, err := c.groups(ctx)
	if err != nil && len(groups) == 0 {
		return
	}
	unknown := 0.0
	if err != nil {
		unknown = 1
	}
	to <- prometheus.MustNewConstMetric(groupLagUnknown, prometheus.GaugeValue, unknown)
	var members, lags []series
	for _, g := range groups {
		members = append(members, series{int64(g.Members), []string{label(g.Name)}})
		for topic, lag := range g.Lag {
			if err != nil {
				break
			}
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
