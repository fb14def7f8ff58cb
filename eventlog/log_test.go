package eventlog_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/eventlog/batch"
	"github.com/weir-log/weir/store/memory"
)

// open starts a log on a store and stops it with the test.
func open(t *testing.T, store eventlog.Store, cfg eventlog.Config) *eventlog.Log {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- log.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return log
}

func topic(t *testing.T, log *eventlog.Log, name string, partitions int) eventlog.Topic {
	t.Helper()
	topic, err := log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	return topic
}

// sealed is a batch of n records, by an idempotent producer when id is not negative.
func sealed(t *testing.T, p eventlog.Partition, n int, id int64, epoch int16, sequence int32) eventlog.Entry {
	t.Helper()
	records := make([]batch.Record, n)
	for i := range records {
		records[i] = batch.Record{Value: fmt.Appendf(nil, "%d/%d", sequence, i), Timestamp: 1}
	}
	raw, err := batch.Seal(records, batch.None)
	if err != nil {
		t.Fatal(err)
	}
	b := eventlog.Batch{Partition: p, Records: int32(n), MaxTime: 1, Bytes: raw}
	if id >= 0 {
		b.Bytes = producedBy(raw, id, epoch, sequence)
		h, err := batch.Parse(b.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		b.Producer = &h
	}
	return eventlog.Entry{Batches: []eventlog.Batch{b}}
}

// values reads everything a partition holds.
func values(t *testing.T, log *eventlog.Log, p eventlog.Partition) (all []string) {
	t.Helper()
	for from := eventlog.Offset(0); ; {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1 << 20}}})
		if err != nil || got[0].Err != nil {
			t.Fatal(err, got)
		}
		for _, b := range got[0].Batches {
			if b.Base > from {
				t.Fatalf("a gap: at %d, the next batch begins at %d", from, b.Base)
			}
			for r, err := range batch.Records(b.Bytes, 1<<20) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, string(r.Value))
			}
			from = b.End()
		}
		if from == got[0].Bounds.Next {
			return all
		}
	}
}

func TestPublishersOfOneFlushShareABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := &gate{Store: memory.New(), open: make(chan struct{})}
		gate.pass()
		log := open(t, gate, eventlog.Config{})
		orders := topic(t, log, "orders", 1)

		gate.shut()
		var publishers sync.WaitGroup
		offsets := make([]eventlog.Offset, 100)
		publish := func(i int) {
			publishers.Go(func() {
				o, err := log.Publish(t.Context(), orders.Partitions[0], batch.Record{Value: []byte("x")})
				if err != nil {
					t.Error(err)
				}
				offsets[i] = o
			})
		}
		publish(0)
		synctest.Wait() // it travels
		for i := range 99 {
			publish(1 + i)
		}
		synctest.Wait() // they gather
		gate.pass()
		publishers.Wait()

		seen := make(map[eventlog.Offset]bool)
		for _, o := range offsets {
			seen[o] = true
		}
		if len(seen) != 100 || !seen[0] || !seen[99] {
			t.Errorf("100 publishers got %d offsets", len(seen))
		}
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: orders.Partitions[0], MaxBytes: 1 << 20}}})
		if err != nil || len(got[0].Batches) != 2 {
			t.Errorf("100 records in %d batches (%v), want 2: the first alone, the rest together", len(got[0].Batches), err)
		}
	})
}

func TestPublishRefusesWhatCannotBeSealed(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	var invalid *eventlog.InvalidError
	if _, err := log.Publish(t.Context(), p, batch.Record{}, batch.Record{Timestamp: -2}); !errors.As(err, &invalid) {
		t.Errorf("a timestamp of -2: %v, want an InvalidError", err)
	}
	large := batch.Record{Headers: []batch.RecordHeader{{Key: "h", Value: make([]byte, 16<<20)}}}
	if _, err := log.Publish(t.Context(), p, large); !errors.Is(err, eventlog.ErrTooLarge) {
		t.Errorf("a header of 16 MiB: %v, want ErrTooLarge", err)
	}
	if _, err := log.Publish(t.Context(), p); err == nil {
		t.Error("no records: want an error")
	}
	if at, err := log.Publish(t.Context(), p, batch.Record{}); err != nil || at != 0 {
		t.Errorf("a good one: at %d, %v", at, err)
	}
}

func TestFetchWakesOnAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := open(t, memory.New(), eventlog.Config{})
		p := topic(t, log, "orders", 1).Partitions[0]
		start := time.Now()
		got := make(chan []eventlog.Slice)
		go func() {
			slices, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1}}, MaxWait: time.Hour})
			if err != nil {
				t.Error(err)
			}
			got <- slices
		}()
		synctest.Wait()
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if slices := <-got; len(slices[0].Batches) != 1 || time.Since(start) > 0 {
			t.Errorf("after %v: %+v", time.Since(start), slices)
		}
	})
}

func TestFetchSeesAnotherProcessWithinAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		here, there := open(t, store, eventlog.Config{}), open(t, store, eventlog.Config{})
		p := topic(t, there, "orders", 1).Partitions[0]
		time.Sleep(time.Second) // fake time: the follower has looked
		if _, err := here.Topic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(10 * time.Second)
			if _, err := there.Publish(t.Context(), p, batch.Record{Value: []byte("x")}); err != nil {
				t.Error(err)
			}
		}()
		start := time.Now()
		got, err := here.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, MaxBytes: 1}}, MaxWait: time.Hour})
		if took := time.Since(start); err != nil || len(got[0].Batches) != 1 || took > 10*time.Second+250*time.Millisecond {
			t.Errorf("after %v: %+v, %v", took, got, err)
		}
	})
}

func TestFetchOutsideTheBoundsSaysThem(t *testing.T) {
	log := open(t, memory.New(), eventlog.Config{})
	p := topic(t, log, "orders", 1).Partitions[0]
	for range 3 {
		if _, err := log.Append(t.Context(), sealed(t, p, 2, -1, 0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Trim(t.Context(), p, 3); err != nil {
		t.Fatal(err)
	}
	for _, from := range []eventlog.Offset{-1, 0, 2, 7} {
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1}}, MaxWait: time.Hour})
		var outside *eventlog.RangeError
		if err != nil || !errors.As(got[0].Err, &outside) || outside.First != 3 || outside.Next != 6 {
			t.Errorf("from %d: %+v, %v", from, got, err)
		}
	}
	got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: 3, MaxBytes: 1}}})
	if err != nil || got[0].Err != nil || got[0].Batches[0].Base != 2 {
		t.Errorf("the batch that holds offset 3 begins at 2: %+v, %v", got, err)
	}
}

func TestTailIsBounded(t *testing.T) {
	reads := &counting{Store: memory.New()}
	log := open(t, reads, eventlog.Config{TailBytes: 10 << 10})
	p := topic(t, log, "orders", 1).Partitions[0]
	for range 100 {
		if _, err := log.Publish(t.Context(), p, batch.Record{Value: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
	before := reads.reads.Load()
	fetch := func(from eventlog.Offset) {
		t.Helper()
		got, err := log.Fetch(t.Context(), eventlog.Want{Spans: []eventlog.Span{{Partition: p, From: from, MaxBytes: 1}}})
		if err != nil || len(got[0].Batches) != 1 || got[0].Batches[0].Base != from {
			t.Fatalf("from %d: %+v, %v", from, got, err)
		}
	}
	fetch(99)
	fetch(95)
	if n := reads.reads.Load() - before; n != 0 {
		t.Errorf("%d trips to the store for the newest batches, want none", n)
	}
	fetch(0)
	if n := reads.reads.Load() - before; n != 1 {
		t.Errorf("%d trips to the store for the oldest batch, want 1", n)
	}
}
