package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weir-log/weir/internal/sim"
)

// A seed decides the plan. It does not decide all of the history: goroutines that can run at the
// same moment of fake time do so in any order, as the runtime chooses among cases of select and the
// order of maps. The test logs how many lines were the same.
func TestASeedHasOnePlan(t *testing.T) {
	for _, kind := range sim.Stores {
		opt := sim.Options{Seed: 7, Store: kind, Length: 10 * time.Second}
		a, b := run(t, opt), run(t, opt)
		if !slices.Equal(a.Plan, b.Plan) {
			t.Errorf("on %s the plans are %v and %v", kind, a.Plan, b.Plan)
		}
		same := 0
		for same < min(len(a.History), len(b.History)) && a.History[same] == b.History[same] {
			same++
		}
		t.Logf("%s: the first %d lines of %d and %d are the same", kind, same, len(a.History), len(b.History))
	}
}
