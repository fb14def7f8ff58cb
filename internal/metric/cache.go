package metric

import "github.com/prometheus/client_golang/prometheus"

// Cache is what the cache in front of the store has done, and what it holds.
type Cache struct {
	Hits, Misses            int64
	HitBytes, MissBytes     int64
	Evictions               int64
	ReadErrors, WriteErrors int64
	Blocks, Bytes           int64
}

// WatchCache registers metrics that come from the function read at each scrape.
func WatchCache(registry prometheus.Registerer, read func() Cache) {
	registry.MustRegister(&cacheCollector{read})
}

type cacheCollector struct{ read func() Cache }

var (
	cacheReads = prometheus.NewDesc("weir_cache_reads_total",
		"Parts of reads that were answered by files of the cache (hit) or by the store (miss). If misses prevail while consumers read old records, raise --cache-bytes.", []string{"result"}, nil)
	cacheReadBytes = prometheus.NewDesc("weir_cache_read_bytes_total",
		"Bytes of batches that readers got from files of the cache (hit) or from the store through the cache (miss).", []string{"result"}, nil)
	cacheEvictions = prometheus.NewDesc("weir_cache_evictions_total",
		"Blocks of the cache that were removed to make room. If it grows as fast as misses, consumers read more than --cache-bytes has room for.", nil, nil)
	cacheErrors = prometheus.NewDesc("weir_cache_errors_total",
		"Blocks of the cache that could not be read, because they were damaged or deleted, and failed writes, for example on a full disk. Readers get the store's records. If it grows, see weir's log and check the disk of --cache-dir.", []string{"op"}, nil)
	cacheBytes = prometheus.NewDesc("weir_cache_bytes",
		"Space that the files of the cache take. It stays below --cache-bytes.", nil, nil)
	cacheBlocks = prometheus.NewDesc("weir_cache_blocks",
		"Files of the cache. If they have far less than 1 MiB each, readers read small parts of many partitions.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c *cacheCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{cacheReads, cacheReadBytes, cacheEvictions, cacheErrors, cacheBytes, cacheBlocks} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *cacheCollector) Collect(to chan<- prometheus.Metric) {
	now := c.read()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(cacheReads, now.Hits, "hit")
	count(cacheReads, now.Misses, "miss")
	count(cacheReadBytes, now.HitBytes, "hit")
	count(cacheReadBytes, now.MissBytes, "miss")
	count(cacheEvictions, now.Evictions)
	count(cacheErrors, now.ReadErrors, "read")
	count(cacheErrors, now.WriteErrors, "write")
	to <- prometheus.MustNewConstMetric(cacheBytes, prometheus.GaugeValue, float64(now.Bytes))
	to <- prometheus.MustNewConstMetric(cacheBlocks, prometheus.GaugeValue, float64(now.Blocks))
}
