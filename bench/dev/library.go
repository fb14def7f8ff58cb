package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/weir-log/weir"
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
	sent := &sender{log: w, size: eventSize, next: make([]uint64, callers)}
	most, err := pace{callers: callers, warmUp: warmUp, length: b.load.length}.run(ctx, sent.publish)
	if err := errors.Join(err, most.clean()); err != nil {
		return err
	}
	seen := &ledger{next: make([]uint64, callers), endToEnd: hdrhistogram.New(1, 600e6, 3)}
	consumer, err := w.Consume(ctx, weir.Subscription{Group: "bench", Topics: []string{"library"}, Handler: seen.handle})
	if err != nil {
		return err
	}
	defer consumer.Close(context.WithoutCancel(ctx))
	if err := seen.await(ctx, sent); err != nil { // what the first part left
		return err
	}
	half := pace{callers: callers, rate: int(most.perSecond / 2), warmUp: warmUp, length: b.load.length}
	seen.countFrom(time.Now().Add(warmUp))
	steady, err := half.run(ctx, sent.publish)
	if err := errors.Join(err, steady.clean(), seen.await(ctx, sent)); err != nil {
		return err
	}
	fmt.Printf("| %s | %.0f | %s | %s | %.0f/s | %s | %s | %s | %s |\n", store, most.perSecond, millis(most.took, 50), millis(most.took, 99),
		steady.perSecond, millis(seen.endToEnd, 50), millis(seen.endToEnd, 99), millis(seen.endToEnd, 100), seen.verdict(sent))
	return nil
}

// sender publishes for many callers. Each has a key of its own, and counts the events under it.
type sender struct {
	log   *weir.Log
	size  int      // of an event's value
	next  []uint64 // a caller's own; read by others when the callers have stopped
	total atomic.Int64
}

func (s *sender) publish(caller, _ int, meant time.Time) error {
	value := noise(s.size, caller)
	binary.BigEndian.PutUint64(value, uint64(meant.UnixNano()))
	binary.BigEndian.PutUint64(value[8:], s.next[caller])
	_, err := s.log.Publish(context.Background(), weir.Event{Topic: "library", Key: []byte(strconv.Itoa(caller)), Value: value})
	if err != nil {
		return err
	}
	s.next[caller]++
	s.total.Add(1)
	return nil
}

// ledger holds what was delivered against what is due: the events of each key, counted up.
type ledger struct {
	mu               sync.Mutex // guards all
	next             []uint64
	delivered        int64
	repeated, missed int
	from             time.Time
	endToEnd         *hdrhistogram.Histogram
}

func (l *ledger) handle(_ context.Context, e weir.Event) error {
	caller, err := strconv.Atoi(string(e.Key))
	if err != nil {
		return weir.Permanent(err)
	}
	meant := time.Unix(0, int64(binary.BigEndian.Uint64(e.Value)))
	n := binary.BigEndian.Uint64(e.Value[8:])
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delivered++
	switch {
	case n < l.next[caller]:
		l.repeated++
	case n > l.next[caller]:
		l.missed++
		l.next[caller] = n + 1
	default:
		l.next[caller]++
	}
	if !l.from.IsZero() && meant.After(l.from) {
		_ = l.endToEnd.RecordValue(now.Sub(meant).Microseconds())
	}
	return nil
}

func (l *ledger) countFrom(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = t
}

// await waits until as many events were delivered as were acknowledged.
func (l *ledger) await(ctx context.Context, sent *sender) error {
	for late := time.Now().Add(5 * time.Minute); ctx.Err() == nil; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		delivered := l.delivered
		l.mu.Unlock()
		if delivered >= sent.total.Load() {
			return nil
		}
		if time.Now().After(late) {
			return fmt.Errorf("%d events were acknowledged, but only %d were delivered after five minutes", sent.total.Load(), delivered)
		}
	}
	return ctx.Err()
}

func (l *ledger) verdict(sent *sender) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delivered == sent.total.Load() && l.repeated == 0 && l.missed == 0 {
		return fmt.Sprintf("yes, %d", l.delivered)
	}
	return fmt.Sprintf("NO: %d acknowledged, %d delivered, %d again or late, %d gaps", sent.total.Load(), l.delivered, l.repeated, l.missed)
}
