package run_test

import (
	"testing"
	"time"

	"github.com/weir-log/weir/bench/workload"
)

// The requests to a bucket are counted by its server. A store whose URL says nothing has the linger
// that a user gets, of a quarter of a second: tests have none.
func TestTheRequestsToABucketAreCounted(t *testing.T) {
	for _, c := range []struct {
		name        string
		least, most float64 // PUTs a second
	}{{"weir-s3", 2, 12}, {"weir-s3-10ms", 12, 120}, {"weir-s3+kafka", 2, 12}, {"null", 0, 0}} {
		t.Run(c.name, func(t *testing.T) {
			w := load(workload.Log, 60)
			w.Batch, w.Writers, w.Phases.Measure, w.Phases.Drain = 1, 20, 4*time.Second, time.Minute
			result, _ := measure(t, c.name, w)
			f := result.Cells[0].Figures
			if f == nil {
				t.Fatalf("%+v", result.Cells[0])
			}
			if c.most == 0 {
				if f.Requests != nil {
					t.Errorf("memory has no bucket: %+v", f.Requests)
				}
				return
			}
			if r := f.Requests; r == nil || r.Puts < c.least || r.Puts > c.most || r.Gets < r.Puts/2 {
				t.Errorf("%v events a second made these requests: %+v", f.PerSecond, r)
			}
		})
	}
}
