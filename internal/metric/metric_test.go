package metric

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-log/weir/eventlog"
)

var _ eventlog.Observer = (*Set)(nil)

func TestEveryEventMovesItsMetric(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := New(registry, "v1")
	s.Flushed(eventlog.Flush{Entries: 2, Batches: 3, Records: 10, Bytes: 1000, Took: time.Millisecond})
	s.Flushed(eventlog.Flush{Entries: 1, Records: 1, Bytes: 1, Err: errors.New("no")})
	s.Fetched(500, true)
	s.Fetched(600, false)
	s.StoreFailed("read", errors.New("no"))
	s.Retried()
	s.Connected(+1)
	s.Connected(+1)
	s.Connected(-1)
	s.Refused("connections")
	s.Throttled("producer_byte_rate", 2500*time.Millisecond)
	s.Answered("Produce", 1000, 50, time.Millisecond)
	h := NewHTTP(registry)
	h.Answered("POST /v1/topics/{topic}/events", 200, time.Millisecond)
	h.Answered("other", 404, time.Millisecond)
	h.Answered("other", 0, time.Millisecond)
	h.Streaming(+1)
	s.Moved(12, time.Millisecond)
	s.Waiting(3, 2*time.Second)
	s.Failed()
	s.Unmovable()
	lag := map[string]int64{"orders": 7}
	WatchGroups(registry, func(context.Context) ([]Group, error) { return []Group{{"billing", 2, lag}}, nil })

	want := map[string]string{
		"weir_build_info":               `version="v1"} 1`,
		"weir_appended_entries_total":   " 2",
		"weir_appended_records_total":   " 10",
		"weir_appended_bytes_total":     " 1000",
		"weir_flush_seconds_count":      " 2",
		"weir_flush_bytes_count":        " 2",
		"weir_flush_failures_total":     " 1",
		"weir_flush_retries_total":      " 1",
		"weir_fetches_total":            `source="store"} 1`,
		"weir_fetched_bytes_total":      `source="tail"} 500`,
		"weir_store_errors_total":       `op="read"} 1`,
		"weir_sql_moved_events_total":   " 12",
		"weir_sql_inbox_seconds_count":  " 1",
		"weir_sql_inbox_events":         " 3",
		"weir_sql_inbox_age_seconds":    " 2",
		"weir_sql_mover_errors_total":   " 1",
		"weir_sql_refused_events_total": " 1",
		"weir_kafka_connections":        " 1",
		"weir_kafka_refused_total":      `reason="connections"} 1`,
		"weir_kafka_throttled_seconds":  `quota="producer_byte_rate"} 2.5`,
		"weir_kafka_request_seconds":    `api="Produce"`,
		"weir_kafka_bytes_total":        `direction="in"} 1000`,
		"weir_http_streams":             " 1",
		"weir_group_members":            `group="billing"} 2`,
		"weir_group_lag_records":        `group="billing",topic="orders"} 7`,
	}
	text := scrape(t, registry)
	for _, line := range []string{`weir_http_responses_total{status="5xx"} 0`, `weir_http_responses_total{status="cut"} 1`, "weir_groups 1"} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, labels := range []string{`route="POST /v1/topics/{topic}/events",status="2xx"} 1`, `route="other",status="4xx"} 1`, `route="other",status="cut"} 1`} {
		if !strings.Contains(text, "weir_http_request_seconds_count{"+labels) {
			t.Errorf("no weir_http_request_seconds_count with %s", labels)
		}
	}
	for name, value := range want {
		found := false
		for line := range strings.Lines(text) {
			found = found || strings.HasPrefix(line, name) && strings.Contains(line, value)
		}
		if !found {
			t.Errorf("no line %s with %s in:\n%s", name, value, text)
		}
	}
}

// An alert on a rate does not see a counter that begins at 1.
func TestCountersStartAtZero(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := New(registry, "v1")
	NewHTTP(registry)
	text := scrape(t, registry)
	want := []string{`weir_fetches_total{source="tail"} 0`, `weir_fetched_bytes_total{source="store"} 0`, `weir_kafka_bytes_total{direction="in"} 0`, `weir_http_responses_total{status="5xx"} 0`}
	for value, metric := range spoken(t) {
		want = append(want, strings.Replace(metric, "?", value, 1)+" 0")
	}
	for _, line := range want {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for i := range 1000 { // nobody foresaw these
		s.Refused(fmt.Sprint("reason", i))
		s.StoreFailed(fmt.Sprint("op", i), errors.New("no"))
	}
	after := scrape(t, registry)
	if before, now := strings.Count(text, "\nweir_"), strings.Count(after, "\nweir_"); now != before {
		t.Errorf("%d lines became %d", before, now)
	}
	for _, line := range []string{`weir_kafka_refused_total{reason="other"} 1000`, `weir_store_errors_total{op="other"} 1000`} {
		if !strings.Contains(after, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
}

// spoken is what the code says to its observers, and the metric that counts it, with ? for it.
func spoken(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, c := range []struct{ files, said, metric string }{
		{"../../eventlog/*.go", `(?:failed|StoreFailed|called|ofNow)\((?:ctx, )?"(\w+)"`, `weir_store_errors_total{op="?"}`},
		{"../../door/kafka/*.go", `refuse\("(\w+)"`, `weir_kafka_refused_total{reason="?"}`},
		{"../../door/kafka/server.go", `return nil, "(\w+)", err`, `weir_kafka_refused_total{reason="?"}`},
	} {
		files, err := filepath.Glob(c.files)
		if err != nil {
			t.Fatal(err)
		}
		before := len(found)
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(c.said).FindAllStringSubmatch(string(text), -1) {
				if !strings.HasSuffix(file, "_test.go") {
					found[m[1]] = c.metric
				}
			}
		}
		if len(found) == before {
			t.Errorf("nothing like %s in %s", c.said, c.files)
		}
	}
	return found
}

// However many groups and topics clients make up, the page has a bound, the largest lags are on it,
// and it shrinks when they go.
func TestGroupsMakeABoundedPage(t *testing.T) {
	registry := prometheus.NewRegistry()
	var groups []Group
	WatchGroups(registry, func(context.Context) ([]Group, error) { return groups, nil })
	empty := strings.Count(scrape(t, registry), "\n")
	for i := range 3000 {
		g := Group{Name: fmt.Sprint("g", i), Members: i % 7, Lag: map[string]int64{}}
		for k := range 3 {
			g.Lag[fmt.Sprint("t", k)] = int64(i)
		}
		groups = append(groups, g)
	}
	text := scrape(t, registry)
	if n := strings.Count(text, "\n"); n > empty+2*seriesMax+4 {
		t.Errorf("%d lines", n)
	}
	for _, line := range []string{"weir_groups 3000", `weir_group_lag_records{group="g2999",topic="t0"} 2999`, `weir_group_members{group="g6"} 6`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if again := scrape(t, registry); again != text {
		t.Error("of the same groups another page is made")
	}
	groups = nil
	if n := strings.Count(scrape(t, registry), "\n"); n != empty {
		t.Errorf("without groups %d lines stay, want %d", n, empty)
	}
}

func TestAnyBytesMayNameAGroup(t *testing.T) {
	registry := prometheus.NewRegistry()
	WatchGroups(registry, func(context.Context) ([]Group, error) {
		return []Group{{"\xff", 1, nil}, {"\xfe", 2, map[string]int64{"\xff": 3}}, {"a\"\n\\", 4, nil}, {"", 5, nil}}, nil
	})
	text := scrape(t, registry)
	for _, want := range []string{`group="\"\\xff\""} 1`, `group="\"\\xfe\""} 2`, `group="a\"\n\\"} 4`, `group=""} 5`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in:\n%s", want, text)
		}
	}
}

func TestUnreadableGroupsAreLeftOut(t *testing.T) {
	registry := prometheus.NewRegistry()
	WatchGroups(registry, func(context.Context) ([]Group, error) { return nil, errors.New("store away") })
	if text := scrape(t, registry); text != "" {
		t.Errorf("want no metrics, got:\n%s", text)
	}
}

// One client's many offsets make the lag late. The groups and their members are shown all the same.
func TestALagThatIsLateHidesNoGroup(t *testing.T) {
	registry := prometheus.NewRegistry()
	WatchGroups(registry, func(context.Context) ([]Group, error) {
		return []Group{{"victim", 3, map[string]int64{"orders": 7}}}, context.DeadlineExceeded
	})
	text := scrape(t, registry)
	for _, want := range []string{"weir_groups 1", `weir_group_members{group="victim"} 3`, "weir_group_lag_unknown 1"} {
		if !strings.Contains(text, want) {
			t.Errorf("want %s in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "weir_group_lag_records{") {
		t.Errorf("a lag that was not read whole is shown:\n%s", text)
	}
}

// The page for operators names every metric, so that each alert has a place to send people to.
func TestOperationsPageNamesEveryMetric(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	s := New(registry, "v1")
	s.Fetched(1, true)
	s.StoreFailed("read", nil)
	s.Refused("x")
	s.Answered("Produce", 1, 1, 1)
	NewHTTP(registry).Answered("other", 200, 1)
	WatchGroups(registry, func(context.Context) ([]Group, error) { return []Group{{"g", 1, map[string]int64{"t": 1}}}, nil })
	WatchQueues(registry, func(context.Context) ([]Queue, int64, error) {
		return []Queue{{Name: "q", Messages: map[string]int64{"ready": 1}}}, 0, nil
	})
	WatchCategories(registry, func() []Category { return []Category{{"c", map[string]int64{"appended": 1}}} })
	WatchProjections(registry, func(context.Context) ([]Projection, error) { return []Projection{{Name: "p", Run: "now"}}, nil })
	WatchCache(registry, func() Cache { return Cache{} })
	WatchS3(registry, func() S3 { return S3{} })
	WatchNotifications(registry, func() float64 { return 0 })
	WatchOAuthKeys(registry, func() time.Time { return time.Time{} })
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		name := family.GetName()
		if strings.HasPrefix(name, "weir_") && !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("docs/operations.md does not name `%s`", name)
		}
	}
}

func scrape(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	return page.Body.String()
}
