package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// load sends records at a fixed rate, each at its time whether or not earlier ones were answered,
// and measures from the time that was meant: so a broker that stalls is charged for everyone who
// had to wait (no coordinated omission).
type load struct {
	address    string
	topic      string
	partitions int
	config     map[string]*string
	rate       int // records a second
	size       int // bytes of each value
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
	received          int
}

func newLatencies() *latencies {
	return &latencies{produce: hdrhistogram.New(1, 60e6, 3), endToEnd: hdrhistogram.New(1, 60e6, 3)}
}

func (l load) run(ctx context.Context, read bool) (*latencies, error) {
	admin, err := kgo.NewClient(kgo.SeedBrokers(l.address))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := kadm.NewClient(admin).CreateTopic(ctx, int32(l.partitions), 1, l.config, l.topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
		return nil, fmt.Errorf("create topic %s: %w", l.topic, err)
	}
	seen := newLatencies()
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
		readers.Go(func() { seen.readAll(readCtx, reader, counted) })
	}
	clients := make([]*kgo.Client, l.clients)
	for i := range clients {
		if clients[i], err = kgo.NewClient(kgo.SeedBrokers(l.address), kgo.DefaultProduceTopic(l.topic), kgo.ProducerLinger(l.linger),
			kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.MaxBufferedRecords(1e6)); err != nil {
			return nil, err
		}
		defer clients[i].Close()
	}
	noise := make([]byte, l.size)
	_, _ = rand.Read(noise)
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
		value := make([]byte, l.size)
		copy(value, noise)
		binary.BigEndian.PutUint64(value, uint64(meant.UnixNano()))
		answers.Add(1)
		clients[n%l.clients].Produce(ctx, &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			defer answers.Done()
			seen.mu.Lock()
			defer seen.mu.Unlock()
			switch {
			case err != nil:
				seen.failed++
			case meant.After(counted):
				_ = seen.produce.RecordValue(time.Since(meant).Microseconds())
			}
		})
	}
	answers.Wait()
	stopReading()
	readers.Wait()
	return seen, ctx.Err()
}

func (s *latencies) readAll(ctx context.Context, reader *kgo.Client, counted time.Time) {
	for ctx.Err() == nil {
		fetches := reader.PollFetches(ctx)
		now := time.Now()
		s.mu.Lock()
		fetches.EachRecord(func(r *kgo.Record) {
			s.received++
			if meant := time.Unix(0, int64(binary.BigEndian.Uint64(r.Value))); meant.After(counted) {
				_ = s.endToEnd.RecordValue(now.Sub(meant).Microseconds())
			}
		})
		s.mu.Unlock()
	}
}

func millis(h *hdrhistogram.Histogram, quantile float64) string {
	return fmt.Sprintf("%.1f ms", float64(h.ValueAtQuantile(quantile))/1000)
}
