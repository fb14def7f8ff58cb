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

func TestQueuesMakeABoundedPage(t *testing.T) {
	registry := prometheus.NewRegistry()
	var queues []Queue
	var away error
	WatchQueues(registry, func(context.Context) ([]Queue, int64, error) { return queues, 7, away })
	for i := range 1000 {
		queues = append(queues, Queue{Name: fmt.Sprint("q", i), Oldest: time.Duration(i) * 1500 * time.Millisecond, Messages: map[string]int64{"ready": int64(i), "dead": 1}})
	}
	text := scrape(t, registry)
	if n := strings.Count(text, "\n"); n > 2*seriesMax+10 {
		t.Errorf("%d lines", n)
	}
	for _, line := range []string{"weir_queues 1000", "weir_queue_delayed_messages 7", `weir_queue_messages{queue="q999",state="ready"} 999`, `weir_queue_oldest_ready_seconds{queue="q999"} 1498.5`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	away = errors.New("store away")
	if text := scrape(t, registry); text != "" {
		t.Errorf("of queues that cannot be read there is:\n%s", text)
	}
}
