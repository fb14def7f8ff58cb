package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-log/weir/internal/pgtest"
)

func TestPricesAreOfWorkloadsThatHaveThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "MACD.csv")
	if err := os.WriteFile(file, []byte("Time\tTick_Volume\tReal_Volume\tHigh\tLow\tOpen\tClose\n2023.02.28 23:59:00\t2\t0\t1\t1\t1\t1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := runCmd{Workloads: []string{"paper-a"}, Systems: []string{"null"}, Mode: "shipped", Scale: 1, Data: file}
	if p, err := c.plan(); err != nil || p.Prices == nil {
		t.Error(p.Prices, err)
	}
	c.Workloads = []string{"one-event"}
	if _, err := c.plan(); err == nil || !strings.Contains(err.Error(), "none of the workloads does") {
		t.Error(err)
	}
	c.Workloads, c.Data = []string{"paper-a"}, filepath.Join(t.TempDir(), "none")
	if _, err := c.plan(); err == nil || !strings.Contains(err.Error(), "--data: ") {
		t.Error(err)
	}
}

func TestAServerOfOnesOwnIsNotKilledAndMustBeUsable(t *testing.T) {
	address := pgtest.URL(t)
	for _, c := range []struct {
		workload, system, mode, name, url string
		says                              string // "": it is taken
	}{
		{"one-event", "weir-postgres", "durable", "postgres", address, ""},
		{"bad-xmin", "weir-postgres", "durable", "postgres", address, ""},
		{"bad-kill", "weir-postgres", "durable", "postgres", address, "the workload bad-kill has a kill of the server"},
		{"bad-pause", "weir-postgres", "durable", "postgres", address, "the workload bad-pause has a pause of the server"},
		{"one-event", "null", "shipped", "postgres", address, "none of the systems is on PostgreSQL"},
		{"one-event", "weir-postgres", "durable", "kafka", address, "only a PostgreSQL can be used"},
		{"one-event", "weir-postgres", "durable", "postgres", "host=127.0.0.1 password=secret", "a URL such as postgres://"},
		{"one-event", "weir-postgres", "durable", "postgres", "postgres://me:secret@127.0.0.1:1/x", "--url postgres=…: "},
		{"one-event", "weir-postgres", "durable", "postgres", address + "&options=-csynchronous_commit%3Doff", "synchronous_commit = off, which is not durable"},
		{"one-event", "weir-postgres", "shipped", "postgres", address + "&options=-csynchronous_commit%3Doff", ""},
	} {
		run := runCmd{Workloads: []string{c.workload}, Systems: []string{c.system}, Mode: c.mode, Scale: 1, URL: map[string]string{c.name: c.url}}
		p, err := run.plan()
		if err != nil {
			t.Fatal(err)
		}
		err = run.given(t.Context(), &p)
		switch {
		case c.says == "" && (err != nil || p.Postgres != c.url):
			t.Errorf("%+v: %v", c, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Nothing is measured whose result has no place.
func TestADirectoryWithAResultIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "result.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := runCmd{Workloads: []string{"one-event"}, Systems: []string{"null"}, Mode: "shipped", Scale: 1, Out: dir}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a measurement would say so
	if err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), "has files already") {
		t.Error(err)
	}
}
