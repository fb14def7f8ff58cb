package report_test

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/weir-log/weir/bench/report"
	"github.com/weir-log/weir/bench/run"
)

// A command has blanks, and a failure has lines: benchstat reads the one, a table has a row of the
// other.
func TestACommandAndAFailureStayInTheirLines(t *testing.T) {
	r := run.Result{Cells: []run.Cell{
		{System: "exec:node /a/b.mjs", Workload: "p-queue", Mode: "durable", Rate: "max", Figures: &run.Figures{PerSecond: 7}},
		{System: "exec:false", Workload: "p-queue", Mode: "durable", Rate: "max", Void: "failed: one\ntwo | three"},
	}}
	var text bytes.Buffer
	if err := report.Benchstat(&text, r); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for reader := benchfmt.NewReader(&text, "bench.txt"); reader.Scan(); {
		switch of := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(of)
		case *benchfmt.Result:
			lines++
			if want := "PQueue/system=exec:node__a_b.mjs/mode=durable/rate=max"; string(of.Name) != want {
				t.Errorf("the name is %s, want %s", of.Name, want)
			}
		}
	}
	if lines != 1 {
		t.Errorf("%d lines are read, want 1", lines)
	}
	text.Reset()
	if err := report.Text(&text, r); err != nil {
		t.Fatal(err)
	}
	if want := `void: failed: one two \| three | –`; !strings.Contains(text.String(), want) {
		t.Errorf("there is no %q in\n%s", want, text.String())
	}
}
