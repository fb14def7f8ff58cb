package sim_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/internal/sim"
)

var (
	seeds  = flag.Int("seeds", 0, "how many random histories to run; 0: as many as fit into -for")
	during = flag.Duration("for", time.Second, "how long to run random histories")
	one    = flag.Uint64("seed", 0, "the one history to run")
	store  = flag.String("store", "", "the kind of store: "+strings.Join(sim.Stores, ", ")+"; none: a random one")
	back   = flag.Bool("put-backs", false, "copies of the store are put back in each history; else in every fourth")
	first  = flag.Bool("first", false, "end with the first history that breaks something, as it is")
	length = flag.Duration("length", time.Minute, "of the part of a history that has faults")
	only   = flag.String("only", "", "the actors, separated by commas: publisher, reader, queue, stream")
	into   = flag.String("history", "", "a file for the history of the first that breaks something")
	logs   = flag.Bool("log", false, "the history has what processes log")
	show   = flag.Bool("show", false, "print the history")
)

// run runs a history in a bubble of its own, on one processor, so that goroutines run more often in
// the same order.
func run(t *testing.T, opt sim.Options) (r sim.Result) {
	cryptotest.SetGlobalRandom(t, opt.Seed)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(400))         // a history has some MB: a fifth less time than with 100
	opt, end := watched(opt, func(why string) { panic(why) }) // nobody can end its goroutines
	defer end()
	ended := false
	defer func() {
		if !ended { // goroutines are left that wait for ever: synctest tells which
			fmt.Fprintf(os.Stderr, "seed %d does not end: %+v\n", opt.Seed, opt)
		}
	}()
	synctest.Test(t, func(*testing.T) { r = sim.Run(opt) })
	ended = true
	return r
}

func TestHistories(t *testing.T) {
	if *mutants || *some != "" {
		t.Skip("-mutants")
	}
	began, lasted, n := time.Now(), time.Duration(0), 0
	random := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) // of its own, before seeds rule
	for ; *seeds == 0 && time.Since(began) < *during || n < *seeds; n++ {
		opt := sim.Options{Seed: random.Uint64N(1 << 40), Store: *store, Length: *length, Back: *back, Logs: *logs}
		if *one != 0 {
			opt.Seed = *one
		}
		if *only != "" {
			opt.Only = strings.Split(*only, ",")
		}
		if *show {
			opt.Show = os.Stdout
		}
		if *first {
			t.Logf("history of seed %d", opt.Seed) // a panic would not tell
		}
		r := run(t, opt)
		lasted += r.Lasted
		if len(r.Found) > 0 && *into != "" {
			if err := os.WriteFile(*into, []byte(strings.Join(r.History, "\n")), 0o600); err != nil {
				t.Error(err)
			}
			*into = ""
		}
		if len(r.Found) > 0 && *first {
			t.Fatalf("seed %d broke %v after %d histories", opt.Seed, r.Found[0].Invariant, n+1)
		}
		if len(r.Found) > 0 {
			report(t, opt, r)
		}
		if *one != 0 {
			break
		}
	}
	took := time.Since(began)
	t.Logf("%d histories, %v of fake time in %v: %.0f s a second", n, lasted.Round(time.Second), took.Round(time.Millisecond), lasted.Seconds()/took.Seconds())
}

// agains is how often a seed that failed is run again, to tell how well it repeats.
const agains = 10

// report tells what a history broke, with the steps of its plan that are needed for that, and its
// last lines.
func report(t *testing.T, opt sim.Options, r sim.Result) {
	opt.Show, opt.Store = nil, r.Store
	again := 0
	for range agains {
		if len(run(t, opt).Found) > 0 {
			again++
		}
	}
	small := shrink(t, opt, r)
	var text strings.Builder
	for _, v := range small.Found[:min(len(small.Found), 5)] {
		fmt.Fprintf(&text, "  %v\n", v)
	}
	fmt.Fprintf(&text, "%d of the %d steps of its plan are left. The history to the first violation:\n", len(small.Plan), len(r.Plan))
	end := slices.IndexFunc(small.History, func(line string) bool { return strings.Contains(line, "VIOLATION") })
	for _, line := range small.History[max(0, end-100) : end+1] {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	t.Errorf("seed %d broke %d on %s, and again in %d of %d runs. Again: make sim ARGS='-seed %d -store %s -length %v'\n%s", opt.Seed, len(r.Found), r.Store, again, agains, opt.Seed, r.Store, opt.Length, &text)
}

// shrink leaves out steps of the plan as long as the history still breaks something.
func shrink(t *testing.T, opt sim.Options, r sim.Result) sim.Result {
	opt.Skip = map[int]bool{}
	small := r
	for i := len(r.Plan) - 1; i >= 0; i-- {
		opt.Skip[i] = true
		if again := run(t, opt); len(again.Found) > 0 {
			small = again
		} else {
			delete(opt.Skip, i)
		}
	}
	small.Plan = slices.DeleteFunc(slices.Clone(small.Plan), func(s sim.Step) bool { return opt.Skip[slices.Index(r.Plan, s)] })
	return small
}
