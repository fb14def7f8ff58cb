package run

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/bench/limit"
	"github.com/weir-log/weir/bench/meter"
	"github.com/weir-log/weir/bench/system"
	"github.com/weir-log/weir/bench/workload"
	"github.com/weir-log/weir/internal/ledger"
)

// flushLength is how long one caller publishes one event at a time, to see how long an answer
// takes.
const flushLength = 2 * time.Second

// sight is what this process sees of writes to the disk that the system's files are on. A disk that
// is memory, or another machine's, may show none.
type sight struct {
	bytes  bool // those of each process
	writes bool // those that all disks completed
}

// limits measures what the machine can do, and whether it shows that something was written.
func limits(dir string) (l limit.Limits, s sight, err error) {
	bytes, writes := meter.Self().Disk, meter.DiskWrites()
	if l, err = limit.Measure(dir); err != nil {
		return l, s, err
	}
	s.bytes = meter.Self().Disk-bytes >= limit.Bytes && meter.Adopts()
	s.writes = meter.DiskWrites()-writes >= limit.Writes
	return l, s, nil
}

// flushes lets one caller send one event at a time. Nobody shares its flushes, so each answer needs
// a write of its own to a disk. Where disks do not show writes, each answer needs the time of a
// flush: a system that answers in less than a quarter of that time, not counting the way there and
// back, has not flushed.
func (m *measurement) flushes(ctx context.Context, k kind, before limit.Limits, disks sight, dir string) (void string, err error) {
	var way time.Duration
	if d, is := m.server.(system.Distant); is && !disks.writes {
		way = d.Way(ctx, m.payload(ledger.Stamp{Run: m.seed}))
	}
	took, answers, writes := newTimes(), int64(0), meter.DiskWrites()
	for until := time.Now().Add(min(flushLength, m.workload.Phases.Measure)); time.Now().Before(until) && ctx.Err() == nil; answers++ {
		began := time.Now()
		if err := k.send(ctx, 0, [][]byte{m.payload(ledger.Stamp{Run: m.seed, Writer: flushWriter, Seq: uint64(answers)})}); err != nil {
			return "", fmt.Errorf("publish one event at a time: %w", err)
		}
		took.note(time.Since(began))
		m.book.Acked(flushWriter, uint64(answers), 1)
		m.acked.Add(1)
	}
	if disks.writes {
		return disks.oneByOne(answers, meter.DiskWrites()-writes), nil
	}
	after, err := limit.Measure(dir)
	if err != nil {
		return "", err
	}
	flush := min(before.Flush4K, after.Flush4K) // a disk that others use meanwhile is slower than it is
	return early(took.latency(), way, flush), nil
}

// early says that answers came before a flush can have ended.
func early(took *Latency, way, flush time.Duration) string {
	if took == nil || time.Duration(took.P50)-way >= flush/4 {
		return ""
	}
	return fmt.Sprintf("acks are not flushed: half of them came within %v, of which the way there and back takes %v, and a flush of this disk takes %v", took.P50, way, flush)
}

// oneByOne says that there were fewer than half as many writes as answers, which shared none; "":
// there were enough, or it is not known.
func (s sight) oneByOne(answers, writes int64) string {
	if !s.writes || writes >= answers/2 {
		return ""
	}
	return fmt.Sprintf("acks are not flushed: %d events were acknowledged one after the other, and meanwhile all disks of this machine completed %d writes", answers, writes)
}

// compressed is the factor by which a system may have compressed payloads that are text.
const compressed = 20

// unwritten says that less was written than was acknowledged; "": enough was, or it is not known.
func (m *measurement) unwritten(disks sight) string {
	least := m.bytes.Load()
	if m.workload.Payload == workload.Price {
		least /= compressed
	}
	if !disks.bytes || m.workload.Fault.Kind != "" || m.written < 0 || m.written >= least {
		return ""
	}
	return fmt.Sprintf("acks are not flushed: %d bytes were written for %d bytes acknowledged", m.written, m.bytes.Load())
}

// hint tells the author of an adapter what to do if a cell was void without reason.
func hint(s system.System, void string) string {
	if !s.Exec() || void == "" {
		return ""
	}
	return "; if the adapter did not start the system, its hello has to say elsewhere"
}
