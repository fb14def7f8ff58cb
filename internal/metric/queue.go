package metric

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is the state of a work queue.
type Queue struct {
	Name     string
	Messages map[string]int64 // by state
	Oldest   time.Duration    // how long the oldest ready message has been ready
}

// WatchQueues registers metrics that come from the function read at each scrape, so that they
// disappear with the queues that they name. read returns the queues, and how many messages of all
// of them are delayed. If it fails, the metrics are left out.
func WatchQueues(registry prometheus.Registerer, read func(context.Context) (queues []Queue, delayed int64, err error)) {
	registry.MustRegister(&queueCollector{read})
}

type queueCollector struct {
	read func(context.Context) ([]Queue, int64, error)
}

var (
	queueCount    = prometheus.NewDesc("weir_queues", "Work queues.", nil, nil)
	queueMessages = prometheus.NewDesc("weir_queue_messages",
		"Messages of a work queue by state (ready, claimed, waiting for another attempt, dead); the 500 largest values. If ready grows, add workers; if dead grows, see weir queue peek QUEUE --dead.",
		[]string{"queue", "state"}, nil)
	queueOldest = prometheus.NewDesc("weir_queue_oldest_ready_seconds",
		"How long the oldest ready message of a queue has been ready; the 500 largest values. If it grows, messages come faster than workers handle them: add workers.", []string{"queue"}, nil)
	queueDelayed = prometheus.NewDesc("weir_queue_delayed_messages",
		"Messages of all work queues that become ready later: delayed ones, and ones that wait more than a minute for another attempt. If it grows without end, a client enqueues messages with very long delays.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *queueCollector) Describe(to chan<- *prometheus.Desc) {
	to <- queueCount
	to <- queueMessages
	to <- queueOldest
	to <- queueDelayed
}

// Collect implements prometheus.Collector.
func (c *queueCollector) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), groupsTimeout)
	defer cancel()
	queues, delayed, err := c.read(ctx)
	if err != nil {
		return // weir_store_errors_total counts it
	}
	var messages, ages []series
	for _, q := range queues {
		for state, n := range q.Messages {
			messages = append(messages, series{n, []string{label(q.Name), state}})
		}
		ages = append(ages, series{q.Oldest.Milliseconds(), []string{label(q.Name)}})
	}
	to <- prometheus.MustNewConstMetric(queueCount, prometheus.GaugeValue, float64(len(queues)))
	to <- prometheus.MustNewConstMetric(queueDelayed, prometheus.GaugeValue, float64(delayed))
	for _, s := range largest(messages) {
		to <- prometheus.MustNewConstMetric(queueMessages, prometheus.GaugeValue, float64(s.value), s.labels...)
	}
	for _, s := range largest(ages) {
		to <- prometheus.MustNewConstMetric(queueOldest, prometheus.GaugeValue, float64(s.value)/1000, s.labels...)
	}
}
