package cli

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCostOfAGivenLoad(t *testing.T) {
	weir(t, "", "cost", "--in", "500KB", "--reads", "3").want(t, exitOK, "500 KB/s in 500 records/s, each read 3 times and kept for 7d: 302 GB",
		"PART", "S3", "POSTGRESQL", "SQLITE", "KAFKA", "machines", "PUT and LIST requests", "total")
	prices := filepath.Join(t.TempDir(), "free.json")
	write := func(text string) {
		if err := os.WriteFile(prices, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"as_of":"today","what":"nobody","sources":"","currency":"EUR","machine":"ours","machine_hour":1,"disk_gb_month":0,"object_gb_month":0,"put_1000":0,"get_1000":0,"zone_gb":0}`)
	weir(t, "", "cost", "--in", "1MB", "--prices", prices).want(t, exitOK, "nobody, today, in EUR", "2190.00")
	write(`{"as_of":"today"}`)
	weir(t, "", "cost", "--in", "1MB", "--prices", prices).want(t, exitConfig, "what is missing", "docs/cost.md")
	weir(t, "", "cost", "--in", "10B", "--record", "500B", "--machine", "5", "--alone", "--members", "1").want(t, exitOK, "PUT and LIST requests  4.8")
	weir(t, "", "cost", "--in", "1MB", "--machine", "5").want(t, exitOK, "machines are priced by --machine", "5.00 ", "10.00 ", "15.00")
	for _, c := range []struct{ flags, want string }{
		{"--in 1MB --machine=-1", "--machine -1"},
		{"--in 1MB --machine NaN", "--machine NaN"},
		{"--in 1MB --record 0", "--record is 0"},
		{"--in 1MB --reads=-1", "--reads -1"},
		{"--in 1MB --reads NaN", "--reads NaN"},
		{"--in 1MB --processes 0", "--processes 0"},
		{"--in 1MB --processes 2 --alone", "contradict each other"},
		{"--in 1MB --members=-1", "from 0 to 1000000"},
		{"--in 1MB --linger 0", "--linger is 0"},
		{"--for 10ms", "--for 10ms"},
	} {
		weir(t, "", append([]string{"cost"}, strings.Fields(c.flags)...)...).want(t, exitUsage, c.want)
	}
}

// The figures are those of docs/cost.md: a longer linger is advised where it saves much, and gives
// what was said that it gives.
func TestCostAdvisesALongerLinger(t *testing.T) {
	weir(t, "", "cost", "--in", "10KB").want(t, exitOK, "total, idle            63.71", "S3 with --linger 2s: 69.42 instead of 124.07")
	followed := weir(t, "", "cost", "--in", "10KB", "--linger", "2s")
	followed.want(t, exitOK, "69.42")
	large := weir(t, "", "cost", "--in", "200MB")
	var answer struct {
		Bills []struct {
			Idle float64 `json:"total_idle"`
		}
		Advice []struct {
			With           string
			Total, Instead float64
		}
	}
	decode(t, weir(t, "", "cost", "--in", "10KB", "--output", "json"), &answer)
	if len(answer.Bills) != 4 || money(answer.Bills[0].Idle) != "63.71" {
		t.Errorf("as JSON, idle: %+v", answer.Bills)
	}
	if a := answer.Advice; len(a) == 0 || a[0].With != "--linger 2s" || money(a[0].Total) != "69.42" {
		t.Errorf("as JSON, advice: %+v", a)
	}
	for _, r := range []result{followed, large} {
		if strings.Contains(r.out, "--linger") {
			t.Errorf("it advises what saves nothing: %s", r.out)
		}
	}
}

const counters = "# TYPE weir_appended_bytes_total counter\n# TYPE weir_appended_records_total counter\n# TYPE weir_fetched_bytes_total counter\n# TYPE weir_s3_requests_total counter\n"

// What is published in a second, and the requests to the bucket, are the differences of two
// scrapes.
func TestCostOfARunningServer(t *testing.T) {
	scrapes := 0.0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scrapes++
		fmt.Fprintf(w, counters+"weir_appended_bytes_total %v\nweir_appended_records_total %v\nweir_fetched_bytes_total{source=\"tail\"} %v\nweir_fetched_bytes_total{source=\"store\"} %v\n", 1e6*scrapes, 1000*scrapes, 1e6*scrapes, 2e6*scrapes)
		fmt.Fprintf(w, "weir_s3_requests_total{kind=\"put\"} %v\nweir_s3_requests_total{kind=\"get\"} %v\nweir_s3_requests_total{kind=\"delete\"} 7\n", 100*scrapes, 200*scrapes)
	}))
	defer server.Close()
	r := weir(t, "", "cost", "--server", server.URL, "--for", "1s", "--output", "json")
	r.want(t, exitOK)
	var got struct {
		Load struct {
			Bytes float64 `json:"bytes_per_second"`
			Reads float64
		}
		Requests struct{ Put, Get float64 } `json:"s3_requests_per_second"`
		Bills    []struct {
			System string
			Total  float64
		}
	}
	decode(t, r, &got)
	seconds := 1e6 / got.Load.Bytes
	if seconds < 1 || math.Abs(got.Load.Reads-3) > 1e-6 || math.Abs(got.Requests.Put*seconds-100) > 1e-6 || math.Abs(got.Requests.Get*seconds-200) > 1e-6 {
		t.Errorf("%+v, over %v s", got, seconds)
	}
	if len(got.Bills) != 4 || got.Bills[0].Total <= 0 {
		t.Errorf("bills: %+v", got.Bills)
	}
	weir(t, "", "cost", "--server", countdown(t), "--for", "1s").want(t, exitFailed, "was started anew")
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "up 1") }))
	defer other.Close()
	weir(t, "", "cost", "--server", other.URL).want(t, exitUnreachable, "not with the metrics of weir")
}

// countdown serves a counter that falls.
func countdown(t *testing.T) string {
	left := 100
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		left -= 10
		fmt.Fprintf(w, counters+"weir_appended_bytes_total %d\nweir_appended_records_total %d\n", left, left)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestNumbersAreNeverWrittenWithAnExponentBelowAThousand(t *testing.T) {
	for v, want := range map[float64]string{999.7: "1000", 999.4: "999", 1000: "1000", 12.34: "12.3", 0.5: "0.5"} {
		if got := number(v); got != want {
			t.Errorf("number(%v) is %q, want %q", v, got, want)
		}
	}
}
