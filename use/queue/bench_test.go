package queue_test

import (
	"context"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/pgtest"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/store/postgres"
	"github.com/weir-log/weir/store/sqlite"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

// BenchmarkOneMessagePerCall is ten writers and fifteen workers, 1 KiB and one message in each
// call: "Kafka is fast, I'll use Postgres".
func BenchmarkOneMessagePerCall(b *testing.B) {
	b.Run("memory", func(b *testing.B) { oneMessagePerCall(b, memory.New()) })
	b.Run("sqlite", func(b *testing.B) {
		s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "weir.db"), sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		oneMessagePerCall(b, s)
	})
	b.Run("postgres", func(b *testing.B) {
		s, err := postgres.Open(b.Context(), pgtest.URL(b), postgres.Options{})
		if err != nil {
			b.Fatal(err)
		}
		oneMessagePerCall(b, s)
	})
}

func oneMessagePerCall(b *testing.B, store eventlog.Store) {
	const writers, workers = 10, 15
	flushes := &flushCounter{Observer: eventlog.Config{}.Observer}
	log, err := eventlog.Open(b.Context(), store, eventlog.Config{Observer: flushes})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	qs := queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	running.Go(func() { _ = qs.Run(ctx) })
	b.Cleanup(func() { cancel(); running.Wait(); _ = store.Close() })
	time.Sleep(100 * time.Millisecond)
	if _, err := qs.Create(ctx, queue.Spec{Name: "bench", Partitions: 4}); err != nil {
		b.Fatal(err)
	}
	q, err := qs.Open(ctx, "bench")
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 1024)
	var left, done atomic.Int64
	left.Store(int64(b.N))
	work, stop := context.WithCancel(ctx)
	b.ResetTimer()
	var all, readers sync.WaitGroup
	for range writers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := q.Enqueue(ctx, queue.NewMessage{Value: value}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range workers {
		readers.Go(func() {
			for work.Err() == nil {
				ms, err := q.Claim(work, queue.Claim{Wait: time.Second})
				if err != nil {
					if work.Err() == nil {
						b.Error(err)
					}
					return
				}
				for _, m := range ms {
					errs, err := q.Ack(ctx, m.Receipt)
					if err != nil || errs[0] != nil {
						b.Error(err, errs)
						return
					}
					if done.Add(1) == int64(b.N) {
						stop()
					}
				}
			}
		})
	}
	all.Wait()
	readers.Wait()
	stop()
	b.ReportMetric(float64(flushes.n.Load())/float64(b.N), "flushes/message")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

type flushCounter struct {
	eventlog.Observer
	n atomic.Int64
}

func (c *flushCounter) Flushed(eventlog.Flush)  { c.n.Add(1) }
func (*flushCounter) Fetched(int, bool)         {}
func (*flushCounter) StoreFailed(string, error) {}
func (*flushCounter) Retried()                  {}
func (*flushCounter) Delivered(time.Duration)   {}
