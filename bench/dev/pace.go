package main

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-log/weir/bench/load"
)

// pace is work that many callers do, each one thing at a time.
type pace struct {
	callers int
	rate    int // things a second of all callers together; 0: as many as they can
	warmUp  time.Duration
	length  time.Duration // counted from the end of the warm-up
}

// paced is what became of it. Failures are counted from the beginning, the rest after the warm-up.
type paced struct {
	done, failed int
	err          error                   // the first failure
	perSecond    float64                 // done
	took         *hdrhistogram.Histogram // microseconds, from the time that was meant

	last time.Duration // when the last of them was done, from the beginning
}

// run lets the callers work, as a load does: with a rate each thing has its time, whether or not
// those before it took longer, and is measured from there. What was due in time counts, whenever it
// is done. n counts the things of one caller.
func (p pace) run(ctx context.Context, do func(caller, n int, meant time.Time) error) (paced, error) {
	begin := time.Now()
	each, next := make([]paced, p.callers), make([]int, p.callers)
	for i := range each {
		each[i].took = hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	}
	load.Load{Writers: p.callers, PerCall: 1, Rate: float64(p.rate), Length: p.warmUp + p.length}.Run(ctx, begin, func(_ context.Context, caller int, due time.Duration) int {
		mine, n := &each[caller], next[caller]
		next[caller]++
		err := do(caller, n, begin.Add(due))
		now := time.Since(begin)
		switch {
		case err != nil:
			mine.failed++
			mine.err = err
		case due >= p.warmUp:
			mine.done++
			mine.last = now
			_ = mine.took.RecordValue((now - due).Microseconds())
		}
		return 1
	})
	return p.merge(each), ctx.Err()
}

// merge adds up. The things a second are those of all the time that they took: a stall at the end
// lowers them.
func (p pace) merge(each []paced) paced {
	all := paced{took: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
	for _, one := range each {
		all.done += one.done
		all.failed += one.failed
		if all.err == nil {
			all.err = one.err
		}
		all.last = max(all.last, one.last)
		all.took.Merge(one.took)
	}
	all.perSecond = float64(all.done) / max(p.length, all.last-p.warmUp).Seconds()
	return all
}

// clean is nil when nothing failed.
func (p paced) clean() error {
	if p.failed > 0 {
		return fmt.Errorf("%d of %d failed, such as: %w", p.failed, p.failed+p.done, p.err)
	}
	return nil
}
