package main

import (
	"slices"
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

func TestHelpIsACommand(t *testing.T) {
	for _, c := range [][2][]string{
		{{"weir-bench", "help"}, {"weir-bench", "--help"}},
		{{"weir-bench", "help", "adapter", "check"}, {"weir-bench", "adapter", "check", "--help"}},
		{{"weir-bench", "systems"}, {"weir-bench", "systems"}},
		{{"weir-bench"}, {"weir-bench"}},
	} {
		if got := helped(c[0]); !slices.Equal(got, c[1]) {
			t.Errorf("%v is %v, want %v", c[0], got, c[1])
		}
	}
}
