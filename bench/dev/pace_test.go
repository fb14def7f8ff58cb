package main

import (
	"testing"
	"testing/synctest"
	"time"
)

// What was due before the end is measured, even if it is done long afterwards.
func TestAStallAtTheEndIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 5 * time.Second
		p := pace{callers: 1, rate: 10, warmUp: time.Second, length: time.Second}
		got, err := p.run(t.Context(), func(_, n int, _ time.Time) error {
			if n == 19 {
				time.Sleep(stall)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if most := got.took.Max(); got.done != 10 || most < stall.Microseconds()*99/100 || got.perSecond > 2 {
			t.Errorf("%d calls are counted, the longest took %d µs, %.1f a second; the last one stalled for %v", got.done, most, got.perSecond, stall)
		}
	})
}
