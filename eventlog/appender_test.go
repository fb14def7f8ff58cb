package eventlog_test

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// flushes notes how many records each flush took.
type flushes struct {
	eventlog.Observer
	records []int64
}

func (f *flushes) Flushed(d eventlog.Flush) { f.records = append(f.records, d.Records) }

// Callers who were answered by one flush and say more share the next one: that some are back while others are not does not mean
// that nobody else is coming.
func TestCallersOfOneFlushShareTheNext(t *testing.T) {
	const callers, rounds = 50, 100
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // everybody's turn comes
	synctest.Test(t, func(t *testing.T) {           // and meanwhile no time passes
		seen := &flushes{}
		log := open(t, memory.New(), eventlog.Config{Observer: seen})
		p := topic(t, log, "t", 1).Partitions[0]
		before := len(seen.records)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				for range rounds {
					for range 5 * (i % 4) {
						runtime.Gosched()
					}
					if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("v")}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		full := 0
		for _, n := range seen.records[before:] {
			if n == callers {
				full++
			}
		}
		// It takes some rounds to gather them, and in the last ones some are done.
		if full < rounds/2 {
			t.Errorf("of %d rounds, %d went out as one flush of all %d callers; the flushes had %v records", rounds, full, callers, seen.records[before:])
		}
	})
}
