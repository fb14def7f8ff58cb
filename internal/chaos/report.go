package main

import (
	"fmt"
	"io"

	"github.com/weir-log/weir/internal/judge"
)

// aroundViolation is how many events of the history a report of a violation shows.
const aroundViolation = 60

// report tells what was broken, with what happened around it, and how to run it again.
func (w *world) report(out io.Writer, found []judge.Violation) {
	const mostOfEach = 3
	told := map[string]int{}
	for i, v := range found {
		if told[v.Invariant]++; told[v.Invariant] > mostOfEach {
			continue
		}
		fmt.Fprintf(out, "\nBROKEN %s (%s), at %v, seed %d on %s:\n  %s\n", v.Invariant, judge.Invariants[v.Invariant], v.At, w.seed, w.opt.store, v.Text)
		if i == 0 {
			fmt.Fprintln(out, "what happened around it:")
			for _, e := range w.history.Around(v.At, v.About, aroundViolation) {
				fmt.Fprintf(out, "  %v %s\n", e.At, e.Text)
			}
		}
	}
	fmt.Fprintf(out, "\n%d violations: %v\n", len(found), told)
	fmt.Fprintf(out, "all that happened, and what the processes said: %s\nagain: make chaos ARGS='%s'\n", w.dir, w.opt.again(w.seed))
}
