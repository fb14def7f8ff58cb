package main

import (
	"slices"
	"testing"

	"github.com/weir-log/weir/internal/judge"
)

func TestASeedPlansTheSameFaults(t *testing.T) {
	plan := func(seed uint64) []step {
		return makePlan((&world{seed: seed}).random("plan"), 60e9, allFaults("postgres", seed, true))
	}
	if a, b := plan(7), plan(7); len(a) == 0 || !slices.Equal(a, b) {
		t.Errorf("the same seed planned %v and %v", a, b)
	}
	if slices.Equal(plan(7), plan(8)) {
		t.Error("two seeds planned the same")
	}
}

func TestCalmKnowsWhatWasDone(t *testing.T) {
	now := judge.Moment(0)
	c := newCalm(func() judge.Moment { return now })
	end := c.disturb("a")
	now = 1e9
	end()
	for _, q := range []struct {
		from, to judge.Moment
		name     string
		want     bool
	}{
		{0, 1e9, "a", false},
		{2e9, 3e9, "a", false}, // it recovers
		{5e9, 6e9, "a", true},
		{0, 1e9, "b", true},
	} {
		if got := c.between(q.from, q.to, q.name); got != q.want {
			t.Errorf("calm for %s between %v and %v: %v", q.name, q.from, q.to, got)
		}
	}
}
