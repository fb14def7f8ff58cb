package httpapi_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-log/weir/door/httpapi"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// start serves on a free port until the test ends, and returns the address.
func start(t *testing.T, ready func() error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_test", Help: "A number."}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- httpapi.New(httpapi.Config{Log: noEvents(t), Ready: ready, Metrics: registry, Logger: slog.New(slog.DiscardHandler)}).Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
	})
	return l.Addr().String()
}

// noEvents is a log for tests that need none.
func noEvents(t *testing.T) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), memory.New(), eventlog.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

func TestReadinessFollowsTheStoreAndHealthDoesNot(t *testing.T) {
	var away atomic.Bool
	address := start(t, func() error {
		if away.Load() {
			return errors.New("store unavailable: connection refused")
		}
		return nil
	})
	if code, body := get(t, "http://"+address+"/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("with the store: %d %q", code, body)
	}
	away.Store(true)
	if code, body := get(t, "http://"+address+"/readyz"); code != 503 || !strings.Contains(body, "connection refused") {
		t.Errorf("without the store: %d %q", code, body)
	}
	if code, _ := get(t, "http://"+address+"/healthz"); code != 200 {
		t.Errorf("health without the store: %d, want 200", code)
	}
	away.Store(false)
	if code, _ := get(t, "http://"+address+"/readyz"); code != 200 {
		t.Errorf("with the store again: %d", code)
	}
}

func TestMetricsAreServed(t *testing.T) {
	address := start(t, func() error { return nil })
	if code, body := get(t, "http://"+address+"/metrics"); code != 200 || !strings.Contains(body, "weir_test 0") {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, "http://"+address+"/other"); code != 404 {
		t.Errorf("an unknown path: %d, want 404", code)
	}
	response, err := http.Post("http://"+address+"/healthz", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 405 {
		t.Errorf("POST: %d, want 405", response.StatusCode)
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	address := start(t, func() error { return nil })
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "GET /healthz HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 64<<10))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != 431 {
		t.Errorf("%d, want 431", response.StatusCode)
	}
}

// A client that sends a header byte by byte, or nothing at all, is cut off.
func TestSlowClientIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- httpapi.New(httpapi.Config{Log: noEvents(t), Ready: func() error { return nil }, Metrics: prometheus.NewRegistry(),
				Logger: slog.New(slog.DiscardHandler)}).Serve(ctx, l)
		}()
		client, server := net.Pipe()
		l.conns <- server
		fmt.Fprint(client, "GET /healthz HT")
		if _, err := io.ReadAll(client); err != nil { // time is fake: this waits for the server alone
			t.Errorf("the connection did not end: %v", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve ended with %v", err)
		}
	})
}
