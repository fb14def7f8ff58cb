package workload_test

import (
	"strings"
	"testing"

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
