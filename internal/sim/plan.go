package sim

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Step is one thing that is done to somebody.
type Step struct {
	at     time.Duration
	what   string
	who    int // a process; -1: all, the store itself
	member int // of the store, which may be made of several; -1: all
	long   time.Duration
	nth    int // which copy is made or put back
}

func (s Step) String() string {
	return fmt.Sprintf("%v %s of %d, member %d, for %v", s.at, s.what, s.who, s.member, s.long)
}

var faults = []string{"crash", "crash", "pause", "away", "away one", "slow", "unsure", "unsure", "fails", "full", "incarnation"}

// How old a copy is that is put back.
const (
	copyYoungest = 200 * time.Millisecond
	copyOldest   = 4 * time.Second
)

// makePlan decides what is done in a history of some length. Every plan does some of the faults
// only, so that rare meetings of two are not always hidden by a third. Copies are put back in some
// histories, up to putBacks times; these are judged by what came later.
func makePlan(random *rand.Rand, length time.Duration, processes, members, putBacks int) (plan []Step) {
	some := append([]string(nil), faults...)
	random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:1+random.IntN(len(some))]
	pace := time.Duration(1+random.IntN(10)) * time.Second
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() * float64(pace))
		if at > length {
			break
		}
		s := Step{at: at, what: some[random.IntN(len(some))], who: random.IntN(processes), member: random.IntN(members)}
		if random.IntN(3) == 0 {
			s.member = -1
		}
		switch s.what {
		case "crash":
			s.long = time.Duration(random.ExpFloat64() * float64(3*time.Second)) // until it starts again
		case "pause":
			s.long = min(time.Duration(random.ExpFloat64()*float64(8*time.Second)), 30*time.Second)
		case "away", "full":
			s.who, s.long = -1, time.Duration(random.ExpFloat64()*float64(3*time.Second))
		case "incarnation":
			s.who, s.member = -1, max(s.member, 0)
		case "slow", "unsure", "fails", "away one":
			if s.long = time.Duration(random.ExpFloat64() * float64(5*time.Second)); random.IntN(3) == 0 && s.what != "away one" {
				s.who = -1
			}
		}
		plan = append(plan, s)
	}
	if putBacks > 0 {
		for n := range 1 + random.IntN(putBacks) {
			at := copyOldest + time.Duration(random.Int64N(int64(length*3/4-copyOldest))) // the rest of the time is for what is acknowledged after it, which counts
			oldest := []time.Duration{500 * time.Millisecond, time.Second, copyOldest}[random.IntN(3)]
			s := Step{who: -1, member: random.IntN(members), nth: n}
			copies, puts := s, s
			copies.at, copies.what = at-copyYoungest-upTo(random, oldest-copyYoungest), "copy"
			puts.at, puts.what = at, "put back"
			plan = append(plan, copies, puts)
			plan = append(plan, restarts(random, at, processes)...)
		}
		slices.SortStableFunc(plan, func(a, b Step) int { return cmp.Compare(a.at, b.at) })
	}
	return plan
}

// restarts is what whoever puts a copy back does right after it: processes are started again, all,
// one or none. Each is down for a second at least: leader epochs are numbered by seconds, so the
// epoch that it begins then has a number that no lost epoch has.
func restarts(random *rand.Rand, from time.Duration, processes int) (plan []Step) {
	which, one := random.IntN(3), random.IntN(processes)
	for who := range processes {
		if which == 0 || which == 1 && who == one {
			plan = append(plan, Step{at: from + upTo(random, time.Second), what: "crash", who: who, long: time.Second + upTo(random, time.Second)})
		}
	}
	return plan
}
