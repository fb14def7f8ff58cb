package report_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
	"github.com/weir-log/weir/internal/browsertest"
)

// reportMost bounds a report's size in bytes: it is sent by mail.
const reportMost = 1_500_000

func TestAReportAsksNothingOfAnyHost(t *testing.T) {
	r := measuredAt("abc", "M", 1234)
	r.Cells[0].Figures.Seconds = []int64{1200, 1300, 10, 1234}
	r.Cells = append(r.Cells,
		run.Cell{System: "another", Mode: "durable", Workload: "one-event", Rate: "max", Figures: &run.Figures{PerSecond: 4321}},
		run.Cell{System: "void", Mode: "durable", Workload: "one-event", Rate: "max", Void: "<script>alert(1)</script>"},
		run.Cell{System: "river", Mode: "durable", Workload: "one-event", Rate: "max", NotRun: "river has no log"},
	)
	file := filepath.Join(t.TempDir(), "report.html")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.HTML(out, r); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Size() > reportMost {
		t.Errorf("the report has %d bytes, at most %d were expected; %v", info.Size(), reportMost, err)
	}
	tab := browsertest.Chromium(t)
	tab.Do(t, chromedp.Navigate("file://"+file), chromedp.WaitReady("table"))
	if got, want := tab.Requests(), []string{"file://" + file}; !slices.Equal(got, want) {
		t.Errorf("it asks for %v, want %v", got, want)
	}
	for _, c := range tab.Complaints() {
		t.Error(c)
	}
	if rows := browsertest.See(t, tab, chromedp.Evaluate[int](`document.querySelectorAll("tbody tr").length`)); rows != 3 {
		t.Errorf("it shows %d rows, want 3: what was not run is below the table", rows)
	}
}
