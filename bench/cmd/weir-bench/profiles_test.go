package main

import (
	"testing"

	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

func TestProfilesNameWhatThereIs(t *testing.T) {
	for name, p := range profiles {
		if len(p.workloads) == 0 || len(p.systems) == 0 || p.scale == 0 || p.runs == 0 || p.about == "" {
			t.Errorf("%s is not whole: %+v", name, p)
		}
		for _, w := range p.workloads {
			if _, err := workload.Find(w); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, s := range p.systems {
			if _, err := system.Find(s); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := workload.Find(name); err == nil {
			t.Errorf("%s is a workload, too", name)
		}
	}
}
