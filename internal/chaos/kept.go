package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// kept are seeds that once failed. A run of each is the same plan; whether it fails again is also
// up to how its parts meet.
var kept = []struct {
	store  string
	seed   uint64
	length time.Duration
	found  string
}{
	{"sqlite", 3565770167, 45 * time.Second, "EnsureTopic said nil for a topic that another process had deleted (L10)"},
	{"postgres", 3642436989, time.Minute, "a broker ended when the database restarted right after it was ready (B0)"},
	{"postgres", 1643340942, time.Minute, "a commit in a transaction went to a namesake, whose events were skipped (G1)"},
	{"postgres", 2443972087, time.Minute, "a group went back to its last commit outside of a transaction (G6)"},
	{"postgres", 1498975193, 10 * time.Minute, "a partition that was asked back from a member that had been cut off for its session was never given back (G8)"},
	{"postgres", 1366647613, 10 * time.Minute, "between the end of a topic's name and that of its partitions a process appended to them (L1, L4)"},
	{"sqlite", 1055425183, time.Minute, "a row of the inbox was refused for good, because a process had not heard yet that its topic was made anew (L1)"},
	{"shards", 11, time.Minute, "a row of an inbox that one process had moved was moved to another partition by a second process (L3)"},
	{"shards", 12, time.Minute, "a row of the inbox of a PostgreSQL that is shard 0 went to a namesake of its topic (L3, L10)"},
	{"shards", 3171339559, 30 * time.Second, "a record was acknowledged by a partition on a lost shard after its topic was deleted and made anew (L1)"},
}

// faultsThen are the faults of a set of shards that seeds were kept with: a later one would change
// their plans.
var faultsThen = []string{"kill", "stop", "term", "crash", "cancel", "terminate", "lose", "hang", "move"}

// runKept runs all seeds that once failed.
func runKept(ctx context.Context, o options) error {
	var failed []string
	for _, k := range kept {
		each := o
		each.store, each.length, each.faults = k.store, k.length, allFaults(k.store, k.seed, false)
		if k.store == "shards" {
			each.faults = faultsThen
		}
		bad, err := oneRun(ctx, each, k.seed)
		if err != nil {
			return err
		}
		if bad {
			failed = append(failed, fmt.Sprintf("seed %d on %s, which once found: %s", k.seed, k.store, k.found))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d kept seeds fail:\n%s", len(failed), len(kept), strings.Join(failed, "\n"))
	}
	return nil
}
