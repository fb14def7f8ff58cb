package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/internal/ledger"
)

// kafkaLoad sends records at a fixed rate, each at its time whether or not earlier ones were
// answered, and measures from the time that was meant: so a broker that stalls is charged for
// everyone who had to wait (no coordinated omission). With a reader, what was acknowledged is
// compared with what came.
type kafkaLoad struct {
	address    string
	topic      string
	partitions int
	config     map[string]*string
	rate       int // records a second
	size       int // bytes of each value, at least ledger.StampSize
	clients    int // records go to the clients in turn; with many, each request holds one record
	warmUp     time.Duration
	length     time.Duration
	linger     time.Duration
}

// latencies are what a load saw. Values are microseconds.
type latencies struct {
	mu                sync.Mutex // guards all
	produce, endToEnd *hdrhistogram.Histogram
	failed            int
	delivered         int64 // to the reader, each once; 0: there was none
}

func newLatencies() *latencies {
	return &latencies{produce: hdrhistogram.New(1, 60e6, 3), endToEnd: hdrhistogram.New(1, 60e6, 3)}
}

// deliverWait bounds how long the reader may take for what was acknowledged.
const deliverWait = time.Minute

// run fails if the reader did not get each acknowledged record once, and nothing else.
func (l kafkaLoad) run(ctx context.Context, read bool) (*latencies, error) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(l.address))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := kadm.NewClient(admin).CreateTopic(ctx, int32(l.partitions), 1, l.config, l.topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return nil, fmt.Errorf("create topic %s: %w", l.topic, err)
	}
	seen, number := newLatencies(), rand.Uint32()
	book := ledger.New(number, false) // without keys there is no order
	begin := time.Now()
	counted := begin.Add(l.warmUp)
	end := counted.Add(l.length)

	var readers sync.WaitGroup
	readCtx, stopReading := context.WithCancel(ctx)
	defer stopReading()
	if read {
		reader, err := kgo.NewClient(kgo.SeedBrokers(l.address), kgo.ConsumeTopics(l.topic), kgo.FetchMinBytes(1))
		if err != nil {
			return nil, err
		}
		defer reader.Close()
		book.Group("reader")
		readers.Go(func() { seen.readAll(readCtx, reader, book, counted) })
	}
	clients := make([]*kgo.Client, l.clients)
	for i := range clients {
		if clients[i], err = kgo.NewClient(kgo.SeedBrokers(l.address), kgo.DefaultProduceTopic(l.topic), kgo.ProducerLinger(l.linger),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1e6)); err != nil {
			return nil, err
		}
		defer clients[i].Close()
	}
	interval := time.Second / time.Duration(l.rate)
	var answers sync.WaitGroup
	for n := 0; ; n++ {
		meant := begin.Add(time.Duration(n) * interval)
		if meant.After(end) || ctx.Err() != nil {
			break
		}
		if wait := time.Until(meant); wait > 0 {
			time.Sleep(wait)
		}
		value := ledger.Payload(ledger.Stamp{Run: number, Seq: uint64(n), Due: meant.UnixNano()}, l.size)
		answers.Add(1)
		clients[n%l.clients].Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			defer answers.Done()
			seen.mu.Lock()
			defer seen.mu.Unlock()
			switch {
			case err != nil:
				seen.failed++
				book.Unknown(0, uint64(n), 1)
				return
			case !meant.Before(counted):
				_ = seen.produce.RecordValue(time.Since(meant).Microseconds())
			}
			book.Acked(0, uint64(n), 1)
		})
	}
	answers.Wait()
	seen.await(ctx, book) // without a reader nothing is missing
	stopReading()
	readers.Wait()
	return seen, errors.Join(seen.judge(book), ctx.Err())
}

// readAll notes what comes to a reader. The latency is that of what was due at a time or later.
func (s *latencies) readAll(ctx context.Context, reader *kgo.Client, book *ledger.Ledger, counted time.Time) {
	for ctx.Err() == nil {
		fetches := reader.PollFetches(ctx)
		now := time.Now()
		s.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			stamp, ok := load.Deliver(book, "reader", r.Value)
			if due := time.Unix(0, stamp.Due); ok && !due.Before(counted) {
				_ = s.endToEnd.RecordValue(now.Sub(due).Microseconds())
			}
		})
		s.mu.Unlock()
	}
}

// await waits until the reader has what was acknowledged.
func (s *latencies) await(ctx context.Context, book *ledger.Ledger) {
	for late := time.Now().Add(deliverWait); book.Missing() > 0 && time.Now().Before(late) && ctx.Err() == nil; {
		time.Sleep(10 * time.Millisecond)
	}
}

// judge fails if the broker broke a promise; else it notes how many records the reader got.
func (s *latencies) judge(book *ledger.Ledger) error {
	v := book.Close()
	if !v.Clean() {
		return fmt.Errorf("the broker broke a promise: %s (%s)", v, v.First)
	}
	s.delivered = v.Delivered
	return nil
}

func millis(h *hdrhistogram.Histogram, quantile float64) string {
	return fmt.Sprintf("%.1f ms", float64(h.ValueAtQuantile(quantile))/1000)
}
