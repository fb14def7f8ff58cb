package metric

import "github.com/prometheus/client_golang/prometheus"

// S3 is how many requests the S3 store has made, by kind. Repeats that the client makes by itself
// are not counted.
type S3 struct{ Puts, Gets, Lists, Deletes int64 }

// WatchS3 registers metrics that come from the function read at each scrape.
func WatchS3(registry prometheus.Registerer, read func() S3) {
	registry.MustRegister(&s3Collector{read})
}

type s3Collector struct{ read func() S3 }

var s3Requests = prometheus.NewDesc("weir_s3_requests_total",
	"Requests of the S3 store by kind: put, get, list, delete. They are what S3 costs. If put grows too fast, raise linger in the store's URL; if get does, raise poll.", []string{"kind"}, nil)

// Describe implements prometheus.Collector.
func (c *s3Collector) Describe(to chan<- *prometheus.Desc) { to <- s3Requests }

// Collect implements prometheus.Collector.
func (c *s3Collector) Collect(to chan<- prometheus.Metric) {
	now := c.read()
	count := func(kind string, n int64) {
		to <- prometheus.MustNewConstMetric(s3Requests, prometheus.CounterValue, float64(n), kind)
	}
	count("put", now.Puts)
	count("get", now.Gets)
	count("list", now.Lists)
	count("delete", now.Deletes)
}
