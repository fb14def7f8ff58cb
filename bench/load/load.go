// Package load makes a benchmark's load: payloads that say what they are, and the times at which
// they are sent.
package load

import (
	"context"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Call is one call of a writer. It returns how many events it sent: those of one call are due
// together.
type Call func(ctx context.Context, writer int, due time.Duration) (events int)

// Load is how calls are made.
type Load struct {
	Writers int
	PerCall int           // events of each call
	Rate    float64       // events a second of all writers together; 0: closed loop, each writer as fast as it is answered
	Length  time.Duration // calls that are due before it has passed are made, however late
	Once    bool          // one call of each writer, and no more
}

// Lateness is how late the generator itself was: from when a call was due until a writer that was
// not waiting for an answer began it.
type Lateness struct {
	mu  sync.Mutex // guards all
	all *hdrhistogram.Histogram
}

// At is the lateness at a percentile.
func (l *Lateness) At(percentile float64) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Duration(l.all.ValueAtPercentile(percentile)) * time.Microsecond
}

func (l *Lateness) note(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.all.RecordValue(d.Microseconds()) // its range is an hour
}

// Run makes the calls, and returns when the last of them was answered or ctx ended.
//
// With a rate, call n is due at n / rate, whoever waits: a system that stalls is charged for all
// that had to wait (no coordinated omission). What is due before the end is made even if its writer
// gets to it only after the end. begin is when the first call is due.
func (l Load) Run(ctx context.Context, begin time.Time, call Call) *Lateness {
	late := &Lateness{all: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
	var writers sync.WaitGroup
	for w := range l.Writers {
		writers.Go(func() {
			if l.Once {
				call(ctx, w, time.Since(begin))
				return
			}
			if l.Rate == 0 {
				for at := time.Since(begin); at < l.Length && ctx.Err() == nil; at = time.Since(begin) {
					call(ctx, w, at)
				}
				return
			}
			every := time.Duration(float64(l.PerCall*l.Writers) / l.Rate * float64(time.Second))
			first := every * time.Duration(w) / time.Duration(l.Writers) // writers take turns
			for due := first; due < l.Length && ctx.Err() == nil; due += every {
				if wait := time.Until(begin.Add(due)); wait > 0 {
					timer := time.NewTimer(wait)
					select {
					case <-timer.C:
					case <-ctx.Done():
						timer.Stop()
						return
					}
					late.note(time.Since(begin.Add(due))) // the writer was free: nobody else's fault
				}
				call(ctx, w, due)
			}
		})
	}
	writers.Wait()
	return late
}
