package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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
}

// run lets the callers work. With a rate each thing has its time, whether or not those before it
// took longer, and is measured from there: who stalls is charged for everyone who had to wait. n
// counts the things of one caller.
func (p pace) run(ctx context.Context, do func(caller, n int, meant time.Time) error) (paced, error) {
	begin := time.Now()
	counted := begin.Add(p.warmUp)
	end := counted.Add(p.length)
	each := make([]paced, p.callers)
	var running sync.WaitGroup
	for caller := range p.callers {
		running.Go(func() {
			mine := &each[caller]
			mine.took = hdrhistogram.New(1, 60e6, 3)
			for n := 0; ctx.Err() == nil; n++ {
				meant := time.Now()
				if p.rate > 0 {
					meant = begin.Add(time.Duration(n*p.callers+caller) * time.Second / time.Duration(p.rate))
					time.Sleep(time.Until(meant))
				}
				if meant.After(end) {
					return
				}
				err := do(caller, n, meant)
				now := time.Now()
				switch {
				case err != nil:
					mine.failed++
					mine.err = err
				case now.After(counted) && now.Before(end):
					mine.done++
					_ = mine.took.RecordValue(now.Sub(meant).Microseconds())
				}
			}
		})
	}
	running.Wait()
	return merge(each, p.length), ctx.Err()
}

func merge(each []paced, length time.Duration) paced {
	all := paced{took: hdrhistogram.New(1, 60e6, 3)}
	for _, one := range each {
		all.done += one.done
		all.failed += one.failed
		if all.err == nil {
			all.err = one.err
		}
		all.took.Merge(one.took)
	}
	all.perSecond = float64(all.done) / length.Seconds()
	return all
}

// clean is nil when nothing failed.
func (p paced) clean() error {
	if p.failed > 0 {
		return fmt.Errorf("%d of %d failed, such as: %w", p.failed, p.failed+p.done, p.err)
	}
	return nil
}
