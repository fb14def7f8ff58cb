package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-log/weir/internal/judge"
)

// pingers is how many pairs of a publisher and a reader play ping.
const pingers = 4

// runPing publishes one event at a time through a broker, while a long poll waits for it there:
// what was acknowledged must come at once, however the two meet. The reader takes a random moment
// between two polls, so that they meet in every way.
func (w *world) runPing(ctx context.Context, nth int) {
	b, partition, session := w.brokers[nth%2], int32(nth), fmt.Sprintf("ping%d", nth)
	arrived := make(chan string, 100)
	go w.readPings(ctx, b, partition, session, arrived)
	for ctx.Err() == nil {
		records := w.model.Invoke(session, ping, 1, true)
		o, places := b.publishOne(ctx, records[0], fmt.Sprintf("?partition=%d", partition))
		w.model.End(records, o, places)
		w.counts.add("pings " + o.String())
		if o != judge.Done {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		w.awaitPing(ctx, b, session, records[0].Value, arrived)
	}
}

func (w *world) readPings(ctx context.Context, b *broker, partition int32, session string, arrived chan<- string) {
	random := w.random(session)
	r := &judge.Reader{Who: session + " at " + b.name, Life: w.model.Living(ping), Next: map[int32]int64{}}
	for ctx.Err() == nil {
		p, err := b.poll(ctx, ping, partition, r.Next[partition], 30*time.Second)
		if err != nil {
			pause(ctx, 50*time.Millisecond)
			continue
		}
		for _, e := range p.Events {
			w.model.Follow(r, judge.Sight{Topic: ping, Place: e.Place, Value: e.Value})
			select {
			case arrived <- e.Value:
			case <-ctx.Done():
			}
		}
		time.Sleep(time.Duration(random.IntN(1500)) * time.Microsecond)
	}
}

// awaitPing waits for an event that was acknowledged.
func (w *world) awaitPing(ctx context.Context, b *broker, session, value string, arrived <-chan string) {
	acked := w.now()
	for {
		select {
		case got := <-arrived:
			if got == value {
				return
			}
		case <-time.After(tellMax):
			now := w.now()
			if w.calm.between(acked, now, b.name) {
				w.model.Broken("L7", []string{ping, b.name}, "%s acknowledged %s, and a reader who waits for it there was not told within %v", b.name, value, tellMax)
				return
			}
			acked = now
		case <-ctx.Done():
			return
		}
	}
}
