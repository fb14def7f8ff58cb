package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
