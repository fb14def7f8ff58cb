package run_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	bench "github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// onePrice is a file of prices with one row, whose tick volume is 4711.
func onePrice(t *testing.T) *bench.Prices {
	t.Helper()
	file := filepath.Join(t.TempDir(), "MACD.csv")
	text := "Time\tTick_Volume\tReal_Volume\tHigh\tLow\tOpen\tClose\n2023.02.28 23:59:00\t4711\t0\t1.058\t1.0579\t1.0579\t1.058\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	prices, err := bench.ReadPrices(file)
	if err != nil {
		t.Fatal(err)
	}
	return prices
}

// measurePrices measures a workload with prices for a second.
func measurePrices(t *testing.T, p run.Plan, name string) run.Result {
	t.Helper()
	s, err := system.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	w := load(workload.Streams, 200)
	w.Batch, w.Payload, w.Phases.Measure, w.Phases.Drain = 1, workload.Price, time.Second, time.Minute
	p.Systems, p.Workloads, p.Modes, p.Runs, p.Seed = []system.System{s}, []workload.Workload{w}, []system.Mode{system.Shipped}, 1, 1
	result, _, err := p.Run(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestEventsAreTheRowsOfAFile(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skipf("%v: the adapter in Python is not measured here", err)
	}
	adapter, err := filepath.Abs("../examples/adapter.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	result := measurePrices(t, run.Plan{Prices: onePrice(t)}, "exec:tee sent | python3 '"+adapter+"'")
	c := result.Cells[0]
	if c.Figures == nil || c.Data == "" || result.Plan.Prices == nil || c.Data != result.Plan.Prices.SHA256 {
		t.Errorf("the cell is %+v, and the plan %+v", c, result.Plan)
	}
	sent, err := os.ReadFile("sent")
	if err != nil {
		t.Fatal(err)
	}
	rows, others := 0, 0
	for _, encoded := range regexp.MustCompile(`"[A-Za-z0-9+/=]{80,}"`).FindAllString(string(sent), -1) {
		var event []byte
		if event, err = base64.StdEncoding.DecodeString(strings.Trim(encoded, `"`)); err != nil {
			t.Fatal(err)
		}
		var p bench.Price
		if err := json.Unmarshal(event, &p); err == nil && p.TickVolume == 4711 {
			rows++
		} else {
			others++
		}
	}
	if rows == 0 || others > 0 {
		t.Errorf("%d events are rows of the file, and %d are not", rows, others)
	}
}

// A program of an older commit would measure rows that are made, and nobody would see it.
func TestAProgramThatDoesNotKnowOfAFileOfPricesIsVoid(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	older := filepath.Join(t.TempDir(), "older")
	if err := os.WriteFile(older, fmt.Appendf(nil, "#!/bin/sh\nsed 's/\"prices\"/\"unknown\"/' | '%s' cell\n", self), 0o755); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(t.TempDir(), "newer")
	if err := os.WriteFile(newer, fmt.Appendf(nil, "#!/bin/sh\nexec '%s' cell\n", self), 0o755); err != nil {
		t.Fatal(err)
	}
	result := measurePrices(t, run.Plan{Prices: onePrice(t), Builds: []run.Build{{Name: "before", Program: older}, {Name: "after", Program: newer}}}, "null")
	if c := result.Cells[0]; c.Figures != nil || !strings.Contains(c.Problem(), "does not know how to measure with prices from a file") {
		t.Errorf("the older one's cell is %q", c.Problem())
	}
	if c := result.Cells[1]; c.Figures == nil || c.Data == "" {
		t.Errorf("the newer one's cell is %q", c.Problem())
	}
}

// What is repeated has the prices of the same file.
func TestARepetitionHasTheSamePrices(t *testing.T) {
	prices := onePrice(t)
	planned := run.Planned{Systems: []string{"null"}, Workloads: []workload.Workload{{Name: "some"}}, Prices: prices}
	if again, err := planned.Again(); err != nil || again.Prices == nil || again.Prices.SHA256 != prices.SHA256 {
		t.Error(again, err)
	}
	if err := os.Remove(prices.File); err != nil {
		t.Fatal(err)
	}
	if _, err := planned.Again(); err == nil || !strings.Contains(err.Error(), prices.File) {
		t.Error(err)
	}
}
