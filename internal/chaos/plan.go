package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A plan is all that a seed decides ahead: which faults come when. What actors do, they decide by
// random choices of their own, which the seed decides, too (world.random). So a seed plans the same
// run each time; how its parts meet differs.
type step struct {
	at    time.Duration
	fault string
	whom  int // which of the processes
	last  time.Duration
}

func (s step) String() string {
	return fmt.Sprintf("%6.2fs %s of process %d for %v", s.at.Seconds(), s.fault, s.whom, s.last.Round(10*time.Millisecond))
}

// Faults come in storms, with calm times between them that are long enough for claims about time: a
// session and more.
const (
	stormLength = 8 * time.Second
	calmLength  = 16 * time.Second
)

// makePlan decides the faults of a run.
func makePlan(random *rand.Rand, length time.Duration, faults []string) (steps []step) {
	if len(faults) == 0 {
		return nil
	}
	for at := 2 * time.Second; at < length; {
		end := at + stormLength
		for at < end {
			s := step{at: at, fault: faults[random.IntN(len(faults))], whom: random.IntN(4)}
			switch s.fault {
			case "stop", "lose", "hang":
				s.last = []time.Duration{300 * time.Millisecond, 2 * time.Second, 8 * time.Second}[random.IntN(3)]
			case "full":
				s.last = time.Duration(1+random.IntN(4)) * time.Second
			default:
				s.last = time.Duration(random.IntN(1500)) * time.Millisecond
			}
			steps = append(steps, s)
			at += s.last + time.Duration(random.IntN(2000))*time.Millisecond
		}
		at += calmLength
	}
	return steps
}

// stores are the stores that runs are made on.
var stores = []string{"sqlite", "postgres", "mysql", "s3", "shards"}

// shorter are the stores that have half of the length in a run of all stores.
var shorter = []string{"s3", "shards"}

// allFaults lists the faults of a store. A disk that becomes full is one in memory, so every other
// seed has an ordinary one.
func allFaults(store string, seed uint64, canFill bool) (all []string) {
	all = []string{"kill", "stop", "term"}
	if store != "sqlite" {
		all = append(all, "crash")
	}
	if store == "postgres" || store == "mysql" || store == "shards" {
		all = append(all, "cancel", "terminate")
	}
	if store == "shards" {
		all = append(all, "lose", "hang", "move", "part", "remake")
	}
	if canFill && seed%2 == 1 && (store == "sqlite" || store == "postgres") { // InnoDB waits for space, or ends, and shards may be in InnoDB; S3 has no disk
		all = append(all, "full")
	}
	return all
}

// chosen returns those of all that a comma-separated list names: everything without one, and none
// for "none".
func chosen(list string, all, optional []string) ([]string, error) {
	if list == "" || list == "all" {
		return all, nil
	}
	if list == "none" {
		return nil, nil
	}
	var some []string
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(all, name) && !slices.Contains(optional, name) {
			return nil, fmt.Errorf("there is no %q; there are %s", name, strings.Join(append(slices.Clone(all), optional...), ", "))
		}
		some = append(some, name)
	}
	return some, nil
}
