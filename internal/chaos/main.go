package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

type options struct {
	store  string
	seed   uint64
	runs   int
	length time.Duration
	faults []string
	only   []string
	weir   string
	until  []string // the invariants of which one, broken, ends a run
	keep   bool
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == embeddedJob {
		if err := runChild(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "embedded log:", err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, args []string) error {
	var o options
	var faults, only, mutant, into, until string
	flags := flag.NewFlagSet("chaos", flag.ExitOnError)
	flags.StringVar(&o.store, "store", "all", "sqlite, postgres, mysql, s3, shards or all")
	flags.Uint64Var(&o.seed, "seed", 0, "what decides everything; 0: a new one")
	flags.IntVar(&o.runs, "runs", 1, "how many seeds, one after the other")
	flags.DurationVar(&o.length, "length", 2*time.Minute, "of each run, without its start and its end; among all stores, s3 and shards have half of it")
	flags.StringVar(&faults, "faults", "all", "some of kill, stop, term, crash, cancel, terminate, lose, hang, move, part, remake, full, separated by commas; full, a full disk, needs root, and is one of all with odd seeds; none")
	flags.StringVar(&only, "only", "", "some of the actors, separated by commas: publishers, groups, topics, queues, streams, sse, poll, ping, idle, look, and on S3 put-backs")
	flags.StringVar(&o.weir, "weir", "", "the program to test; without it, it is built")
	flags.StringVar(&until, "until", "any", "what ends a run when it is broken: any invariant, none, or some, such as L5,G1")
	flags.BoolVar(&o.keep, "keep", false, "keep the histories of runs that break nothing")
	all := flags.Bool("mutants", false, "instead, put faults back that weir once had, one after the other, see each found, and print a table")
	real := flags.Bool("real", false, "with -mutants or -mutant: histories in real time find those of S3 and of shards, instead of tests")
	flags.StringVar(&mutant, "mutant", "", "as -mutants, but only those with this text in their name: mutants.go")
	flags.StringVar(&into, "into", "", "with -mutant and a whole name: only put the fault into a copy of the repository in this directory")
	again := flags.Bool("kept", false, "instead, run the seeds that once failed: kept.go")
	_ = flags.Parse(args) // it exits
	if into != "" {
		return makeMutant(ctx, mutant, into)
	}
	if *all || mutant != "" {
		return findMutants(ctx, mutant, *real)
	}
	tested, every := []string{o.store}, o.store == "all"
	if every {
		tested = stores
	}
	o.until = strings.Split(until, ",")
	if only != "" {
		o.only = strings.Split(only, ",")
	}
	scratch, err := os.MkdirTemp("", "weir-chaos-program-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	if o.weir == "" {
		o.weir = filepath.Join(scratch, "weir")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", o.weir, "./cmd/weir").CombinedOutput(); err != nil {
			return fmt.Errorf("build weir: %w\n%s", err, out)
		}
	}
	if *again {
		return runKept(ctx, o)
	}
	broken, fills := 0, canFill()
	for i := range o.runs {
		seed := o.seed + uint64(i)
		if o.seed == 0 {
			seed = rand.Uint64() >> 32
		}
		for _, store := range tested {
			each := o
			each.store = store
			if every && slices.Contains(shorter, store) {
				each.length /= 2
			}
			if each.faults, err = chosen(faults, allFaults(store, seed, fills), []string{"full"}); err != nil {
				return fmt.Errorf("-faults: %w", err)
			}
			bad, err := oneRun(ctx, each, seed)
			if err != nil {
				return err
			}
			if bad {
				broken++
			}
		}
	}
	if broken > 0 {
		return fmt.Errorf("%d of %d runs broke a promise", broken, o.runs*len(tested))
	}
	return nil
}

func oneRun(ctx context.Context, o options, seed uint64) (bad bool, err error) {
	fmt.Printf("chaos on %s, seed %d, %v, faults %s\n", o.store, seed, o.length, o.faultNames())
	begin := time.Now()
	w, found, err := run(ctx, o, seed, o.weir)
	if w == nil {
		return false, err
	}
	w.counts.print(os.Stdout)
	if len(found) > 0 {
		w.report(os.Stdout, found)
		return true, nil
	}
	if ctx.Err() != nil {
		return false, errors.New("it was stopped")
	}
	if err != nil {
		return false, fmt.Errorf("seed %d on %s: %w; see %s", seed, o.store, err, w.dir)
	}
	fmt.Printf("seed %d on %s broke nothing, in %v\n", seed, o.store, time.Since(begin).Round(time.Second))
	if o.keep {
		fmt.Println("its history:", w.dir)
		return false, nil
	}
	return false, os.RemoveAll(w.dir)
}

// has says whether a fault is among those of the run.
func (o options) has(fault string) bool { return slices.Contains(o.faults, fault) }

func (o options) faultNames() string { return cmp.Or(strings.Join(o.faults, ","), "none") }

// does says whether an actor acts.
func (o options) does(what string) bool { return len(o.only) == 0 || slices.Contains(o.only, what) }

// putBackLength is how long the bucket is put back, once all other actors have finished: a quarter
// of a run on S3.
func (o options) putBackLength() time.Duration {
	switch {
	case o.store != "s3" || !o.does(putBackActor):
		return 0
	case len(o.only) == 1:
		return o.length
	}
	return o.length / 4
}

// again is how to run a seed again.
func (o options) again(seed uint64) string {
	args := fmt.Sprintf("-store %s -seed %d -length %v -faults %s", o.store, seed, o.length, o.faultNames())
	if len(o.only) > 0 {
		args += " -only " + strings.Join(o.only, ",")
	}
	return args
}
