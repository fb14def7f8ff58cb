package run

import (
	"time"

	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
)

// Ratios are the figures of a durable cell beside what its machine could do before and after it, so
// that they can be compared with those of another disk. 0: unknown.
type Ratios struct {
	Answers float64 `json:"answers_per_flush,omitempty"`      // calls acknowledged in the time that a flush of 4 KiB takes
	Bytes   float64 `json:"share_of_flushed_bytes,omitempty"` // of events, by those that the disk takes in writes of 1 MiB with a flush each
	P50     float64 `json:"answer_p50_in_flushes,omitempty"`  // the time until half of the answers, by that of a flush of 4 KiB
}

// Ratios are computed from what a result keeps, so that older results have them, too; nil: there
// are none. Of a queue the calls are those that enqueue.
func (c Cell) Ratios(w workload.Workload) *Ratios {
	f := c.Figures
	if f == nil || c.Given || c.Mode != system.Durable || f.Idle != nil || c.Rate == (workload.Rate{Once: true}).String() {
		return nil
	}
	mean := func(a, b time.Duration) float64 { return (a + b).Seconds() / 2 }
	flush, mebibyte := mean(c.Before.Flush4K, c.After.Flush4K), mean(c.Before.Flush1M, c.After.Flush1M)
	if flush == 0 || mebibyte == 0 {
		return nil
	}
	r := Ratios{Bytes: f.PerSecond * float64(w.Size) * mebibyte / (1 << 20)}
	if w.Batch > 0 {
		r.Answers = f.PerSecond / float64(w.Batch) * flush
	}
	if f.Call != nil {
		r.P50 = time.Duration(f.Call.P50).Seconds() / flush
	}
	return &r
}
