// Package metric is the one table of metrics. eventlog.Log and the doors report to observers, and
// do not import this package: Set implements those observers.
package metric

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weir-log/weir/eventlog"
)

// Set holds the metrics of one program. It is an eventlog.Observer.
type Set struct {
	requests    *prometheus.HistogramVec
	bytes       counters
	connections prometheus.Gauge
	refused     counters
	throttled   counters

	deliverySeconds prometheus.Histogram
	flushSeconds    prometheus.Histogram
	flushBytes      prometheus.Histogram
	flushFailures   prometheus.Counter
	entries         prometheus.Counter
	records         prometheus.Counter
	appended        prometheus.Counter
	retries         prometheus.Counter

	fetches     counters
	fetched     counters
	storeErrors counters

	moved       prometheus.Counter
	moverErrors prometheus.Counter
	unmovable   prometheus.Counter
	inbox       prometheus.Histogram
	inboxRows   prometheus.Gauge
	inboxAge    prometheus.Gauge
}

// New registers the metrics. Each help text says what to do when the number changes.
func New(registry prometheus.Registerer, version string) *Set {
	registry.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	t := table{registry}
	t.gaugeVec("weir_build_info", "Always 1; the label is the version of weir.", "version").WithLabelValues(version).Set(1)
	return &Set{
		requests: t.histogramVec("weir_kafka_request_seconds",
			"Time from the last byte of a request to the last byte of its answer, by API. Fetch waits for records on purpose. If Produce takes longer, check weir_flush_seconds.",
			latencies, "api"),
		bytes: t.counters("weir_kafka_bytes_total",
			"Bytes received from and sent to Kafka clients. If it comes near what the network can carry, compress the records.", "direction", "in", "out"),
		connections: t.gauge("weir_kafka_connections",
			"Open connections of Kafka clients. If it grows without end, a client does not close its connections."),
		refused: t.counters("weir_kafka_refused_total",
			"Connections of Kafka clients that weir closed or refused, by reason. If it grows, weir's log names the client: for connections, connections_per_ip and connection_rate at level debug; for idle not at all.", "reason", refusals...),
		throttled: t.counters("weir_kafka_throttled_seconds_total",
			"Time for which clients were told to pause, because they exceeded a quota, by kind of quota. If it grows, `weir quota list` shows the quotas.", "quota", quotas...),

		flushSeconds: t.histogram("weir_flush_seconds",
			"Time the store took to make one flush durable. Every acknowledgement waits for it: if it grows, check the store's disk.", latencies),
		flushBytes: t.histogram("weir_flush_bytes",
			"Bytes in one flush. Small flushes under load: few producers write at the same time. Flushes in the largest bucket: the store is the bottleneck.", sizes),
		flushFailures: t.counter("weir_flush_failures_total",
			"Flushes that the store did not commit, or not all of. If it grows, check weir_store_errors_total and the store's own log."),
		entries: t.counter("weir_appended_entries_total",
			"Changes made durable. Divided by weir_flush_seconds_count: how many callers share one flush."),
		records: t.counter("weir_appended_records_total", "Records made durable. If it stops growing, check the producers first."),
		appended: t.counter("weir_appended_bytes_total",
			"Bytes of records made durable. Its rate times the retention time is the space that the store needs."),
		retries: t.counter("weir_flush_retries_total",
			"Flushes that weir sent again because the store did not commit them. If it grows, the store is unavailable or overloaded."),

		fetches: t.counters("weir_fetches_total",
			"Reads of a partition that returned records, from the tail in memory or from the store. If the share of the store grows, consumers read records that are older than the tail.", "source", "tail", "store"),
		fetched: t.counters("weir_fetched_bytes_total",
			"Bytes of records returned to readers, from the tail in memory or from the store. If the share of the store grows, consumers read records that are older than the tail.", "source", "tail", "store"),
		deliverySeconds: t.histogram("weir_delivery_seconds",
			"Age of the newest record of a partition when a reader that waited for it gets it, by the record's timestamp, which a producer's clock has set. If it grows and weir_flush_seconds does not, producers wait before they send, or the processor is busy.", latencies),
		storeErrors: t.counters("weir_store_errors_total",
			"Errors of the store, by operation. If it grows, see weir's log for the error, and examine the store with `weir doctor`.", "op", storeOps...),

		moved: t.counter("weir_sql_moved_events_total", "Events that were published by SQL and moved into the log. If it stops growing, check whether the table weir.inbox has rows."),
		moverErrors: t.counter("weir_sql_mover_errors_total",
			"Failed attempts to read weir.inbox or to move its events, statement timeouts included. If it grows, see weir's log for the error."),
		unmovable: t.counter("weir_sql_refused_events_total", "Events published by SQL that can never be moved into the log. They are in the table weir_inbox_refused, with the reason; the log has it, too."),
		inboxRows: t.gauge("weir_sql_inbox_events", "Upper bound of the number of events in weir.inbox, when weir last read it. If it grows, events come faster than weir moves them: check weir_sql_mover_errors_total."),
		inboxAge:  t.gauge("weir_sql_inbox_age_seconds", "How long the oldest event in weir.inbox has waited, its transaction included. If it grows, check weir_sql_mover_errors_total."),
		inbox: t.histogram("weir_sql_inbox_seconds",
			"Time from weir.publish to the log, for the oldest event of each move. The time until the transaction commits is included. If all values grow, check weir_flush_seconds.", latencies),
	}
}

// The values of labels: why the Kafka door closes a connection, the quotas of clients, and the
// operations of a store (eventlog.Observer).
var (
	refusals = []string{"bad_length", "bad_login", "bad_request", "certificate", "connection_rate", "connections", "connections_per_ip", "http", "idle", "login_ended", "not_logged_in", "slow_frame", "slow_login", "ssh", "tls", "tls_handshake", "too_large", "unknown_key", "unsupported_version"}
	quotas   = []string{"connection_creation_rate", "consumer_byte_rate", "controller_mutation_rate", "producer_byte_rate", "request_percentage"}
	storeOps = []string{"commit", "get", "list", "moved", "read", "seek", "trim"}
)

// Buckets. Latencies range from half a millisecond, a flush on a good disk, to 16 s; sizes from 256
// bytes to 16 MiB.
var (
	latencies = prometheus.ExponentialBuckets(0.0005, 2, 16)
	sizes     = prometheus.ExponentialBuckets(256, 4, 9)
)

// Flushed is called after every commit.
func (s *Set) Flushed(f eventlog.Flush) {
	s.flushSeconds.Observe(f.Took.Seconds())
	s.flushBytes.Observe(float64(f.Bytes))
	if f.Err != nil {
		s.flushFailures.Inc()
		return
	}
	s.entries.Add(float64(f.Entries))
	s.records.Add(float64(f.Records))
	s.appended.Add(float64(f.Bytes))
}

// Fetched is called for every partition of an answer that has records.
func (s *Set) Fetched(bytes int, fromTail bool) {
	source := "store"
	if fromTail {
		source = "tail"
	}
	s.fetches.of(source).Inc()
	s.fetched.of(source).Add(float64(bytes))
}

// Delivered is called for every partition for whose records a reader has waited.
func (s *Set) Delivered(age time.Duration) { s.deliverySeconds.Observe(age.Seconds()) }

// StoreFailed is called for every error of the store.
func (s *Set) StoreFailed(op string, _ error) { s.storeErrors.of(op).Inc() }

// Retried is called when a flush is sent again.
func (s *Set) Retried() { s.retries.Inc() }

// Moved is called after every move of events that SQL sessions published.
func (s *Set) Moved(events int, oldest time.Duration) {
	s.moved.Add(float64(events))
	s.inbox.Observe(oldest.Seconds())
}

// Waiting is called with what is in the inbox.
func (s *Set) Waiting(events int64, oldest time.Duration) {
	s.inboxRows.Set(float64(events))
	s.inboxAge.Set(oldest.Seconds())
}

// Unmovable is called for each event that SQL sessions published and that can never be moved.
func (s *Set) Unmovable() { s.unmovable.Inc() }

// Failed is called after a poll or a move of the inbox that failed.
func (s *Set) Failed() { s.moverErrors.Inc() }

// Connected is called when a connection is opened (+1) or closed (-1).
func (s *Set) Connected(change int) { s.connections.Add(float64(change)) }

// Refused is called when the server closes a connection on a client.
func (s *Set) Refused(reason string) { s.refused.of(reason).Inc() }

// Throttled is called when a client must pause.
func (s *Set) Throttled(quota string, pause time.Duration) {
	s.throttled.of(quota).Add(pause.Seconds())
}

// Answered is called for every request and its answer.
func (s *Set) Answered(api string, in, out int, took time.Duration) {
	s.requests.WithLabelValues(api).Observe(took.Seconds())
	s.bytes.of("in").Add(float64(in))
	s.bytes.of("out").Add(float64(out))
}

// table creates metrics and registers them.
type table struct{ registry prometheus.Registerer }

func add[C prometheus.Collector](t table, c C) C {
	t.registry.MustRegister(c)
	return c
}

func (t table) counter(name, help string) prometheus.Counter {
	return add(t, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
}

// counters are one counter for each value of a label. All exist from the start, at 0: an alert on a
// rate would miss a counter that begins at 1. Values that are not listed are counted together.
type counters map[string]prometheus.Counter

const otherValue = "other"

func (c counters) of(value string) prometheus.Counter {
	if one, known := c[value]; known {
		return one
	}
	return c[otherValue]
}

func (t table) counters(name, help, label string, values ...string) counters {
	vec := add(t, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label}))
	c := make(counters)
	for _, value := range append(values, otherValue) {
		c[value] = vec.WithLabelValues(value)
	}
	return c
}

func (t table) gauge(name, help string) prometheus.Gauge {
	return add(t, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
}

func (t table) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return add(t, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
}

func (t table) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return add(t, prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}))
}

func (t table) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return add(t, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels))
}
