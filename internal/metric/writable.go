package metric

import "github.com/prometheus/client_golang/prometheus"

// WatchWritable registers a metric of whether the store accepts records. refusing returns why it does not, or nil.
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
