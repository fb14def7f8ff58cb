package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/pgtest"
)

// limit is how long a test waits for anything.
const limit = time.Minute

// launch serves until the test ends, and returns where.
func launch(t *testing.T, store string, one bool) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, store, one) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with: %v", err)
		}
	})
	return "http://" + listener.Addr().String()
}

// get reads an answer.
func get(t *testing.T, url string, into any) (status int) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if res.StatusCode == http.StatusOK {
		if err := json.Unmarshal(body, into); err != nil {
			t.Fatalf("%s: %s", url, body)
		}
	}
	return res.StatusCode
}

// All rows are there once, in order, whatever the stream and the store.
func TestAllPricesAreProjected(t *testing.T) {
	const rows = 400
	for name, store := range map[string]func() string{
		"memory":   func() string { return "memory:" },
		"sqlite":   func() string { return "sqlite:" + filepath.Join(t.TempDir(), "weir.db") },
		"postgres": func() string { return pgtest.URL(t) },
	} {
		for _, one := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "/a stream for each pair", true: "/one stream"}[one], func(t *testing.T) {
				base := launch(t, store(), one)
				if err := (load{url: base, rows: rows, clients: 4, seed: 7}).send(t.Context()); err != nil {
					t.Fatal(err)
				}
				var late delays
				for end := time.Now().Add(limit); late.Events < rows && time.Now().Before(end); {
					get(t, base+"/latency", &late)
				}
				if late.Events != rows || late.Max < late.P50 || late.P50 <= 0 {
					t.Errorf("%+v, want %d events", late, rows)
				}
				all := generate(7, rows)
				for i, p := range pairs {
					want := all[rows-len(pairs)+i].command
					var got rate
					if status := get(t, base+"/currency/"+p, &got); status != http.StatusOK || got.Events != rows/len(pairs) || got.command != want {
						t.Errorf("%s: %d, %+v, want %+v", p, status, got, want)
					}
					early := all[10*len(pairs)+i].command
					var then command
					at := url.QueryEscape(early.Time.Add(time.Second).Format(time.RFC3339))
					if status := get(t, base+"/currency/"+p+"?at="+at, &then); status != http.StatusOK || then != early {
						t.Errorf("%s then: %d, %+v, want %+v", p, status, then, early)
					}
				}
			})
		}
	}
}

func TestWhatIsNoPriceIsRefused(t *testing.T) {
	base := launch(t, "memory:", false)
	for body, want := range map[string]string{
		``:      "EOF",
		`{}`:    "time is missing",
		`[1]`:   "cannot unmarshal",
		`{"x"}`: "invalid",
		`{"time":"2023-01-01T00:00:00Z","low":2,"high":1}`:                    "must be between",
		`{"time":"2023-01-01T00:00:00Z","tickVolume":-1}`:                     "negative",
		`{"time":"2023-01-01T00:00:00Z","colour":"red"}`:                      "unknown field",
		`{"time":"2023-01-01T00:00:00Z","x":"` + strings.Repeat("x", bodyMax): "too large",
	} {
		res, err := http.Post(base+"/currency/USD/EUR", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(said), want) {
			t.Errorf("%.60s: %s %s, want 400 and %q", body, res.Status, said, want)
		}
	}
	if status := get(t, base+"/currency/USD/EUR", nil); status != http.StatusNotFound {
		t.Errorf("a pair without a price: %d, want 404", status)
	}
}
