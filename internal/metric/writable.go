package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WatchWritable registers a metric of whether the store accepts records. refusing returns why it
// does not, or nil.
func WatchWritable(registry prometheus.Registerer, refusing func() error) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_store_writable",
		Help: "1 while the store accepts records, 0 while it refuses them. At 0 its disk is full, or it is read-only: see /readyz and the log.",
	}, func() float64 {
		if refusing() != nil {
			return 0
		}
		return 1
	}))
}

// WatchBehind registers a metric of a process that only reads its store. behind returns how long
// ago it last knew all that was written.
func WatchBehind(registry prometheus.Registerer, behind func() time.Duration) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_replica_behind_seconds",
		Help: "How long ago this process, which only reads the store, last knew all that was written. If it grows, the store does not answer or reading it is too slow: see /readyz and the log.",
	}, func() float64 { return behind().Seconds() }))
}

// WatchNotifications registers a metric of the notification queue of a PostgreSQL server. used
// returns which share of it is used, from 0 to 1.
func WatchNotifications(registry prometheus.Registerer, used func() float64) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_postgres_notification_queue_usage_ratio",
		Help: "Share of PostgreSQL's notification queue that is used, from 0 to 1. From 0.5 on weir does not notify, and polls; at 1 other programs' transactions that notify cannot commit. If it grows, end the sessions that listen and stay in a transaction.",
	}, used))
}
