package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir/bench/workload"
)

func TestAllWorkloadsCanBeRead(t *testing.T) {
	if n := len(workload.All()); n < 5 {
		t.Errorf("there are %d workloads", n)
	}
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	const good = "name: x\nkind: queue\nwriters: 1\nworkers: 1\nbatch: 1\nsize: 100\nrates: [max, 50%, 10]\nphases: {measure: 1s, drain: 1s}\n"
	if _, err := workload.Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for change, says := range map[string]string{
		"writers: 1|writers: 0":           "writers",
		"kind: queue|kind: quue":          "kind",
		"size: 100|size: 8":               "size",
		"rates: [max, 50%, 10]|rates: []": "rates",
		"[max, 50%, 10]|[50%, max]":       "needs max before it",
		"[max, 50%, 10]|[fast]":           "neither max",
		"[max, 50%, 10]|[max, 200%]":      "no share",
		"workers: 1|wrokers: 1":           "wrokers",
	} {
		was, is, _ := strings.Cut(change, "|")
		if _, err := workload.Parse([]byte(strings.Replace(good, was, is, 1))); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("with %q: %v", is, err)
		}
	}
}

func TestAShorterRunHasFewerKillsAndNotFasterOnes(t *testing.T) {
	all, err := workload.Find("bad-kill")
	if err != nil {
		t.Fatal(err)
	}
	w := all[0].Scaled(0.1)
	if f := w.Fault; f.Times != 1 || f.After != 10*time.Second || f.Every != 20*time.Second || w.Phases.Measure != 40*time.Second {
		t.Errorf("%+v, %+v", w.Fault, w.Phases)
	}
	if all, err = workload.Find("bad-xmin"); err != nil {
		t.Fatal(err)
	}
	if w := all[0].Scaled(0.1); w.Phases.Measure != 5*time.Minute || w.Fault.After != time.Minute || w.Fault.For != 3*time.Minute {
		t.Errorf("%+v, %+v", w.Fault, w.Phases)
	}
}
