package run

import (
	"time"

	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/ledger"
)

// Tests share their machine: the generator is as late as they are. They have no time for many
// readings of a system that is slow.
func init() { lateLeast, readingsFor = time.Hour, 2*time.Second }

// Seen reports whether what processes write to a directory is counted.
func Seen(dir string) bool { _, s, err := limits(dir); return err == nil && s.bytes }

// OneByOne says whether answers that came one after the other were written.
func OneByOne(seen bool, answers, writes int64) string {
	return sight{writes: seen}.oneByOne(answers, writes)
}

// Unwritten says whether so many bytes that were acknowledged were written.
func Unwritten(seen bool, bytes, written int64, w workload.Workload) string {
	m := &measurement{workload: w, written: written}
	m.bytes.Store(bytes)
	return m.unwritten(sight{bytes: seen})
}

// Slow says that a generator was late.
func Slow(late time.Duration) string {
	m := &measurement{}
	return m.void(ledger.Verdict{Acked: 1}, &Figures{Call: &Latency{}, Late: Duration(late)})
}

// Early says whether answers came before a flush can have ended.
func Early(took, way, flush time.Duration) string {
	return early(&Latency{P50: Duration(took)}, way, flush)
}
