package run_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/workload"
)

func enrolment(rate float64) workload.Workload {
	w := load(workload.Decisions, rate)
	w.Batch, w.Courses, w.Capacity, w.Streams = 1, 2, 20, 0
	w.Phases.Measure, w.Phases.Drain = time.Second, time.Minute
	return w
}

func TestNoCourseHasMoreStudentsThanPlaces(t *testing.T) {
	for _, name := range []string{"null", "weir-sqlite", "weir-postgres", "pg-plain"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, _ := measure(t, name, enrolment(0))
			for _, c := range result.Cells {
				if !c.Verdict.Clean() || c.Verdict.Acked < 20 || c.Verdict.Delivered < c.Verdict.Acked || c.NotRun != "" {
					t.Errorf("%+v, %s", c.Verdict, c.Problem())
				}
			}
		})
	}
}

func TestALiarThatOverbooksIsCaught(t *testing.T) {
	t.Parallel()
	result, clean := measure(t, "liar-overbooks", enrolment(0))
	if c := result.Cells[0]; clean || c.Figures != nil || c.Verdict.Gaps == 0 || !strings.Contains(c.Verdict.First, "21 students and 20 places") {
		t.Errorf("the cell is %q: %s", c.Problem(), c.Verdict.First)
	}
}

func TestDecisionsNeedTags(t *testing.T) {
	result, _ := measure(t, "river", enrolment(10))
	if p := result.Cells[0].Problem(); !strings.Contains(p, "has no appends within a boundary of tags") {
		t.Errorf("the cell is %q", p)
	}
}
