package httpapi

import (
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/use/apikey"
)

func TestOneKeyDoesNotTakeAllLongPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Polls: 8}))
		_, root := door.key(t, apikey.Spec{Access: admins})
		_, greedy := door.key(t, apikey.Spec{Access: reads})
		answered := make(chan *httptest.ResponseRecorder, 3)
		for range 3 {
			go func() { answered <- door.bearer(greedy, "GET", ordersPage+"?wait_ms=5000", "") }()
		}
		synctest.Wait()
		if w := <-answered; w.Code != 429 || !strings.Contains(w.Body.String(), "too_many_polls") || !strings.Contains(w.Body.String(), `"limit":2`) {
			t.Errorf("a third: %d %s, want 429 with the limit 2", w.Code, w.Body)
		}
		for what, w := range map[string]*httptest.ResponseRecorder{
			"one that does not wait": door.bearer(greedy, "GET", ordersPage, ""),
			"another key":            door.bearer(root, "GET", ordersPage+"?wait_ms=1000", ""),
			"one that waited":        <-answered,
			"another that waited":    <-answered,
			"afterwards":             door.bearer(greedy, "GET", ordersPage+"?wait_ms=1", ""),
		} {
			if w.Code != 200 {
				t.Errorf("%s: %d %s", what, w.Code, w.Body)
			}
		}
	})
}

func TestRequestsInProgressAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{Requests: 4}))
		_, root := door.key(t, apikey.Spec{Access: admins})
		_, greedy := door.key(t, apikey.Spec{Access: reads})
		answered := make(chan *httptest.ResponseRecorder, 10)
		wait := func(key string) {
			go func() { answered <- door.bearer(key, "GET", ordersPage+"?wait_ms=5000", "") }()
			synctest.Wait()
		}
		for range 3 {
			wait(greedy)
		}
		if w := door.bearer(greedy, "GET", "/v1/topics", ""); w.Code != 429 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "too_many_requests") || !strings.Contains(w.Body.String(), `"limit":3`) {
			t.Errorf("a fourth of one key: %d %s %s, want 429 with the limit 3, and when to try again", w.Code, w.Header(), w.Body)
		}
		wait(root)
		for _, key := range []string{root, ""} { // the bound comes before the check of the key
			if w := door.bearer(key, "GET", "/v1/topics", ""); w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "overloaded") || !strings.Contains(w.Body.String(), `"limit":4`) {
				t.Errorf("a fifth: %d %s, want 503 with the limit 4", w.Code, w.Body)
			}
		}
		if w := door.bearer("", "GET", "/healthz", ""); w.Code != 200 {
			t.Errorf("/healthz: %d %s", w.Code, w.Body)
		}
		for range 4 {
			if w := <-answered; w.Code != 200 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		}
		if w := door.bearer(greedy, "GET", "/v1/topics", ""); w.Code != 200 {
			t.Errorf("afterwards: %d %s", w.Code, w.Body)
		}
	})
}

func TestOneKeyDoesNotTakeAllMemoryForBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{}.With(Limits{BodyBytes: 1 << 20}))
		_, root := door.key(t, apikey.Spec{Access: admins})
		_, greedy := door.key(t, apikey.Spec{Access: admins})
		const path = "/v1/topics/orders.eu/events"
		first, more := io.Pipe()
		answered := make(chan *httptest.ResponseRecorder)
		go func() {
			r := httptest.NewRequest("POST", path, first)
			r.Host, r.ContentLength = "localhost", 600<<10
			r.Header.Set("Authorization", "Bearer "+greedy)
			w := httptest.NewRecorder()
			door.ServeHTTP(w, r)
			answered <- w
		}()
		if _, err := more.Write(make([]byte, 500<<10)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w := door.bearer(greedy, "POST", path, strings.Repeat("x", 300<<10)); w.Code != 429 || !strings.Contains(w.Body.String(), `"limit":786432`) {
			t.Errorf("a second body: %d %s, want 429 with the limit", w.Code, w.Body)
		}
		if w := door.bearer(root, "POST", path, strings.Repeat("x", 300<<10)); w.Code != 200 {
			t.Errorf("another key: %d %s", w.Code, w.Body)
		}
		if _, err := more.Write(make([]byte, 100<<10)); err != nil {
			t.Fatal(err)
		}
		more.Close()
		if w := <-answered; w.Code != 200 {
			t.Errorf("the first: %d %s", w.Code, w.Body)
		}
		if w := door.bearer(greedy, "POST", path, strings.Repeat("x", 700<<10)); w.Code != 200 {
			t.Errorf("afterwards: %d %s", w.Code, w.Body)
		}
	})
}

func TestMetricsAreReadByFewAtATime(t *testing.T) {
	door := lock(t, Config{})
	begun, release := make(chan struct{}), make(chan struct{})
	door.server.cfg.Metrics.(*prometheus.Registry).MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
		begun <- struct{}{}
		<-release
		return 1
	}))
	answered := make(chan *httptest.ResponseRecorder, scrapesMax)
	for range scrapesMax {
		go func() { answered <- door.ask(hereToo, "GET", "/metrics", "") }()
	}
	for range scrapesMax {
		<-begun
	}
	if w := door.ask(hereToo, "GET", "/metrics", ""); w.Code != 503 || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), `"limit":4`) {
		t.Errorf("one more: %d %s %s, want 503 with the limit, and when to try again", w.Code, w.Header(), w.Body)
	}
	close(release)
	for range scrapesMax {
		if w := <-answered; w.Code != 200 || !strings.Contains(w.Body.String(), "slow 1") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// Strangers of one network do not take all pages of the console: others come to its login.
func TestStrangersHaveAShareOfTheConsolesPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := lock(t, Config{})
		door.key(t, apikey.Spec{Access: admins}) // now who shows nothing is a stranger
		inside := &Inside{door.server}
		page := func(from string, made func()) error {
			r := httptest.NewRequestWithContext(t.Context(), "GET", "http://127.0.0.1:8080/", nil)
			r.RemoteAddr = from
			return inside.Page(httptest.NewRecorder(), r, func() (int, string, []byte) {
				made()
				return 200, "text/plain", []byte("page")
			})
		}
		begun, release := make(chan struct{}, consoleMax), make(chan struct{})
		ended := make(chan error, consoleMax)
		for range consoleMax {
			go func() {
				ended <- page("203.0.113.1:1", func() {
					begun <- struct{}{}
					<-release
				})
			}()
		}
		synctest.Wait()
		if len(begun) != consoleMax/4 {
			t.Errorf("strangers of one network have %d pages made at a time, want %d", len(begun), consoleMax/4)
		}
		if err := page("198.51.100.1:1", func() {}); err != nil {
			t.Errorf("a stranger of another network: %v", err)
		}
		close(release)
		for range consoleMax {
			if err := <-ended; err != nil {
				t.Errorf("one that waited: %v", err)
			}
		}
	})
}
