package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/bench/load"
	"github.com/weir-log/weir/internal/ledger"
)

// runLibrary publishes one event a call through the Go library: first as many as 50 callers can,
// then half as many, each at its time, with a group that consumes them in the same process.
func runLibrary(ctx context.Context, b *bench) error {
	fmt.Println("| store | events/s | publish p50 | p99 | at | end to end p50 | p99 | max | delivered, in order, once |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, store := range b.stores {
		for range b.runs {
			if err := b.library(ctx, store); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) library(ctx context.Context, store string) error {
	const callers, partitions, warmUp = 50, 4, 2 * time.Second
	address, closeStore, err := b.store(store)
	if err != nil {
		return err
	}
	defer closeStore()
	w, err := weir.Open(ctx, address, weir.Options{Logger: warnings()})
	if err != nil {
		return err
	}
	defer w.Close(context.WithoutCancel(ctx))
	if err := w.EnsureTopic(ctx, weir.Topic{Name: "library", Partitions: partitions}); err != nil {
		return err
	}
	sent := newSender(w, eventSize, callers)
	most, err := pace{callers: callers, warmUp: warmUp, length: b.load.length}.run(ctx, sent.publish)
	if err := errors.Join(err, most.clean()); err != nil {
		return err
	}
	seen := newReceiver(sent)
	consumer, err := w.Consume(ctx, weir.Subscription{Group: "bench", Topics: []string{"library"}, Handler: seen.handle})
	if err != nil {
		return err
	}
	defer consumer.Close(context.WithoutCancel(ctx))
	if err := seen.await(ctx); err != nil { // what the first part left
		return err
	}
	half := pace{callers: callers, rate: int(most.perSecond / 2), warmUp: warmUp, length: b.load.length}
	seen.countFrom(time.Now().Add(warmUp))
	steady, err := half.run(ctx, sent.publish)
	if err := errors.Join(err, steady.clean(), seen.await(ctx)); err != nil {
		return err
	}
	fmt.Printf("| %s | %.0f | %s | %s | %.0f/s | %s | %s | %s | %s |\n", store, most.perSecond, millis(most.took, 50), millis(most.took, 99),
		steady.perSecond, millis(seen.endToEnd, 50), millis(seen.endToEnd, 99), millis(seen.endToEnd, 100), seen.verdict())
	return nil
}

// sender publishes for many callers. Each has a key of its own, so that its events have an order.
type sender struct {
	log  *weir.Log
	size int // of an event's value
	run  uint32
	book *ledger.Ledger
	next []uint64 // a caller's own
}

func newSender(log *weir.Log, size, callers int) *sender {
	run := rand.Uint32()
	return &sender{log: log, size: size, run: run, book: ledger.New(run, true), next: make([]uint64, callers)}
}

func (s *sender) publish(caller, _ int, meant time.Time) error {
	n := s.next[caller]
	s.next[caller]++
	value := ledger.Payload(ledger.Stamp{Run: s.run, Writer: uint32(caller), Seq: n, Due: meant.UnixNano()}, s.size)
	_, err := s.log.Publish(context.Background(), weir.Event{Topic: "library", Key: []byte(strconv.Itoa(caller)), Value: value})
	if err != nil {
		s.book.Unknown(uint32(caller), n, 1)
		return err
	}
	s.book.Acked(uint32(caller), n, 1)
	return nil
}

// receiver is the group that gets what a sender publishes.
type receiver struct {
	book *ledger.Ledger

	mu       sync.Mutex // guards all below
	from     time.Time  // what was due before it is not measured; zero: nothing is
	endToEnd *hdrhistogram.Histogram
}

func newReceiver(s *sender) *receiver {
	s.book.Group("bench")
	return &receiver{book: s.book, endToEnd: hdrhistogram.New(1, 600e6, 3)}
}

func (r *receiver) handle(_ context.Context, e weir.Event) error {
	stamp, ok := load.Deliver(r.book, "bench", e.Value)
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if due := time.Unix(0, stamp.Due); ok && !r.from.IsZero() && due.After(r.from) {
		_ = r.endToEnd.RecordValue(now.Sub(due).Microseconds())
	}
	return nil
}

func (r *receiver) countFrom(t time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = t
}

// await waits until all that was acknowledged was delivered, and judges it.
func (r *receiver) await(ctx context.Context) error {
	for late := time.Now().Add(5 * time.Minute); ctx.Err() == nil && r.book.Missing() > 0 && time.Now().Before(late); {
		time.Sleep(20 * time.Millisecond)
	}
	if v := r.book.Close(); !v.Clean() {
		return fmt.Errorf("a promise was broken: %s (%s)", v, v.First)
	}
	return ctx.Err()
}

// verdict says how many events were delivered, all of them once and in order: await has judged
// them.
func (r *receiver) verdict() string { return fmt.Sprintf("yes, %d", r.book.Close().Delivered) }
