package metric

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HTTP are the metrics of the HTTP door. It is the door's observer.
type HTTP struct {
	requests *prometheus.HistogramVec
	answers  counters
	streams  prometheus.Gauge
}

// NewHTTP registers the rows of the table that are about HTTP.
func NewHTTP(registry prometheus.Registerer) *HTTP {
	t := table{registry}
	return &HTTP{
		requests: t.histogramVec("weir_http_request_seconds",
			"Time from a request's header to the end of its answer, by route and class of status. Long polls and streams take long on purpose. If publishing takes longer, check weir_flush_seconds; if there are more 4xx, a client sends wrong requests.",
			latencies, "route", "status"),
		answers: t.counters("weir_http_responses_total",
			"Answers by class of status; cut: weir closed the connection because it could not send the whole answer. If 5xx or cut grows, check weir's log and weir_store_errors_total.",
			"status", "1xx", "2xx", "3xx", "4xx", "5xx", "cut"),
		streams: t.gauge("weir_http_streams",
			"Open streams of HTTP clients. If it grows without end, a client does not close its streams."),
	}
}

// Answered is called after every request.
func (m *HTTP) Answered(route string, status int, took time.Duration) {
	class := statusClass(status)
	m.requests.WithLabelValues(route, class).Observe(took.Seconds())
	m.answers.of(class).Inc()
}

// Streaming is called when a stream begins (+1) or ends (-1).
func (m *HTTP) Streaming(change int) { m.streams.Add(float64(change)) }

// statusClass returns the class of a status, such as 2xx. Any other number, such as 0, means that
// the connection was cut.
func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "cut"
	}
	return strconv.Itoa(status/100) + "xx"
}
