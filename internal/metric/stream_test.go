package metric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestStreamsMakeABoundedPage(t *testing.T) {
	registry := prometheus.NewRegistry()
	var categories []Category
	var projections []Projection
	var away error
	WatchCategories(registry, func() []Category { return categories })
	WatchProjections(registry, func(context.Context) ([]Projection, error) { return projections, away })
	for i := range 1000 {
		categories = append(categories, Category{fmt.Sprint("c", i), map[string]int64{"appended": int64(i), "conflict": 0}})
		projections = append(projections, Projection{Name: fmt.Sprint("p", i), Run: "next", Lag: int64(i), Behind: time.Duration(i) * 1500 * time.Millisecond})
	}
	text := scrape(t, registry)
	if n := strings.Count(text, "\n"); n > 3*seriesMax+10 {
		t.Errorf("%d lines", n)
	}
	for _, line := range []string{`weir_stream_appends_total{category="c999",outcome="appended"} 999`, `weir_projection_lag_records{projection="p999",run="next"} 999`, `weir_projection_behind_seconds{projection="p999",run="next"} 1498.5`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	away = errors.New("store away")
	if text := scrape(t, registry); strings.Contains(text, "weir_projection") || !strings.Contains(text, "weir_stream_appends_total") {
		t.Errorf("of projections that cannot be read there is:\n%s", text)
	}
}
