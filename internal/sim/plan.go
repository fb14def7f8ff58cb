package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Step is one thing that is done to somebody.
type Step struct {
	at   time.Duration
	what string
	who  int // a process; -1: all, the store itself
	long time.Duration
}

func (s Step) String() string {
	return fmt.Sprintf("%v %s of %d for %v", s.at, s.what, s.who, s.long)
}

var faults = []string{"crash", "crash", "pause", "away", "away one", "slow", "unsure", "unsure", "fails", "full", "incarnation"}

// makePlan decides what is done in a history of some length. Every plan does some of the faults
// only, so that rare meetings of two are not always hidden by a third.
func makePlan(random *rand.Rand, length time.Duration, processes int) (plan []Step) {
	some := append([]string(nil), faults...)
	random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:1+random.IntN(len(some))]
	pace := time.Duration(1+random.IntN(10)) * time.Second
	for at := time.Duration(0); ; {
		at += time.Duration(random.ExpFloat64() * float64(pace))
		if at > length {
			return plan
		}
		s := Step{at: at, what: some[random.IntN(len(some))], who: random.IntN(processes)}
		switch s.what {
		case "crash":
			s.long = time.Duration(random.ExpFloat64() * float64(3*time.Second)) // until it starts again
		case "pause":
			s.long = min(time.Duration(random.ExpFloat64()*float64(8*time.Second)), 30*time.Second)
		case "away", "full":
			s.who, s.long = -1, time.Duration(random.ExpFloat64()*float64(3*time.Second))
		case "incarnation":
			s.who = -1
		case "slow", "unsure", "fails", "away one":
			if s.long = time.Duration(random.ExpFloat64() * float64(5*time.Second)); random.IntN(3) == 0 && s.what != "away one" {
				s.who = -1
			}
		}
		plan = append(plan, s)
	}
}
