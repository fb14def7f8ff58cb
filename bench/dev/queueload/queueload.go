// Package queueload puts the same load on work queues of any make, and measures them: writers
// enqueue, workers claim, handle and acknowledge.
package queueload

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Queue is a work queue under test.
type Queue interface {
	// Enqueue makes messages durable, in one call. Writers call it at the same time.
	Enqueue(ctx context.Context, values [][]byte) error
	// Work claims up to batch messages a call with so many workers, passes each message to handle,
	// and acknowledges what it claimed, durably, until ctx ends, which is no error.
	Work(ctx context.Context, workers, batch int, handle func(value []byte)) error
}

// Load is what is put on a queue.
type Load struct {
	Writers, Workers int
	Batch            int           // messages a call; 1: one by one
	Size             int           // bytes of a message, at least 16; they do not compress
	Rate             int           // messages a second, each at its time; 0: as many as the workers take
	WarmUp, Length   time.Duration // what is measured comes after the warm-up
	Window           time.Duration // Result.Windows counts what was handled in each; 0: they are not counted
}

// backlogMax is how many messages writers without a rate are ahead of the workers: enough for each
// call to find one, and too few to make a long queue.
const backlogMax = 5000

// Result is what was measured. Handled messages were acknowledged.
type Result struct {
	PerSecond     float64 // messages handled
	P50, P99, Max time.Duration
	Enqueued      int64
	Handled       int64
	Repeated      int64
	Windows       []int64 // messages handled in each Load.Window after the warm-up
}

// Run puts the load on the queue. It fails if a call failed, or if not every message that was
// enqueued was handled within a minute of the end. Latency is from the time that a message was due,
// or of the call that enqueued it, to its handler.
func (l Load) Run(ctx context.Context, q Queue) (Result, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &run{Load: l, begin: time.Now(), took: hdrhistogram.New(1, 600e6, 3), seen: make(map[uint64]bool)}
	working, stopWork := context.WithCancel(ctx)
	defer stopWork()
	var workers, writers sync.WaitGroup
	workers.Go(func() {
		if err := q.Work(working, l.Workers, l.Batch, r.handle); err != nil && working.Err() == nil {
			stop(fmt.Errorf("work: %w", err))
		}
	})
	for writer := range l.Writers {
		writers.Go(func() {
			if err := r.write(ctx, q, writer); err != nil && ctx.Err() == nil {
				stop(fmt.Errorf("enqueue: %w", err))
			}
		})
	}
	writers.Wait()
	for late := time.Now().Add(time.Minute); ctx.Err() == nil && r.handled.Load() < r.enqueued.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			stop(fmt.Errorf("%d messages were enqueued, but only %d were handled a minute later", r.enqueued.Load(), r.handled.Load()))
		}
	}
	stopWork()
	workers.Wait()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	micros := func(quantile float64) time.Duration {
		return time.Duration(r.took.ValueAtQuantile(quantile)) * time.Microsecond
	}
	return Result{
		PerSecond: float64(r.counted) / l.Length.Seconds(), P50: micros(50), P99: micros(99), Max: micros(100),
		Enqueued: r.enqueued.Load(), Handled: r.handled.Load(), Repeated: r.repeated, Windows: r.windows,
	}, nil
}

// run is a load on its way.
type run struct {
	Load
	begin             time.Time
	enqueued, handled atomic.Int64 // different messages

	mu       sync.Mutex // guards what follows
	seen     map[uint64]bool
	counted  int64
	repeated int64
	took     *hdrhistogram.Histogram // microseconds
	windows  []int64
}

func (r *run) write(ctx context.Context, q Queue, writer int) error {
	random := rand.NewChaCha8([32]byte{byte(writer)})
	end := r.begin.Add(r.WarmUp + r.Length)
	for n := 0; ctx.Err() == nil; n++ {
		due := time.Now()
		if r.Rate > 0 {
			due = r.begin.Add(time.Duration((n*r.Writers+writer)*r.Batch) * time.Second / time.Duration(r.Rate))
			time.Sleep(time.Until(due))
		} else if r.enqueued.Load()-r.handled.Load() > backlogMax {
			time.Sleep(time.Millisecond)
			n--
			if due.After(end) {
				return nil
			}
			continue
		}
		if due.After(end) {
			return nil
		}
		values := make([][]byte, r.Batch)
		for i := range values {
			values[i] = make([]byte, max(r.Size, 16))
			_, _ = random.Read(values[i][16:])
			binary.BigEndian.PutUint64(values[i], uint64(due.UnixNano()))
			binary.BigEndian.PutUint64(values[i][8:], uint64(writer)<<40|uint64(n*r.Batch+i))
		}
		if err := q.Enqueue(ctx, values); err != nil {
			return err
		}
		r.enqueued.Add(int64(r.Batch))
	}
	return ctx.Err()
}

func (r *run) handle(value []byte) {
	now := time.Now()
	due := time.Unix(0, int64(binary.BigEndian.Uint64(value)))
	id := binary.BigEndian.Uint64(value[8:])
	since := now.Sub(r.begin)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[id] {
		r.repeated++
		return
	}
	r.seen[id] = true
	r.handled.Add(1)
	if since > r.WarmUp && since <= r.WarmUp+r.Length {
		r.counted++
		if r.Window > 0 {
			i := int((since - r.WarmUp) / r.Window)
			for len(r.windows) <= i {
				r.windows = append(r.windows, 0)
			}
			r.windows[i]++
		}
		_ = r.took.RecordValue(now.Sub(due).Microseconds())
	}
}
