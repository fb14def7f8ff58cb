package weir_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/internal/seed"
	"github.com/weir-log/weir/store/memory"
)

// Random histories: processes end and start again while a shard is away. Nothing acknowledged is
// lost, each key is handled in order, and what is on that shard is handled when it is back.
func TestProcessesStartWhileShardsComeAndGo(t *testing.T) {
	for _, number := range seed.Histories(t, 1) {
		r := rand.New(rand.NewPCG(number, 2))
		shards := []*gone{{Store: memory.New()}, {Store: memory.New()}, {Store: memory.New()}}
		h := &orderly{last: map[string]int{}, more: make(chan struct{}, 1)}
		var consuming sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		open := func() *weir.Log {
			t.Helper()
			set := openShards(t, remains{shards[0]}, remains{shards[1]}, remains{shards[2]})
			w, err := weir.OpenStore(t.Context(), set, weir.Options{Logger: silent, Poll: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			consuming.Go(func() { // the group may be on the shard that is away, and may not have begun
				for ctx.Err() == nil {
					_, err := w.Consume(ctx, weir.Subscription{Group: "billing", Topics: []string{"orders"}, Handler: h.handle})
					if err == nil || errors.Is(err, weir.ErrClosed) {
						return
					}
					if !errors.Is(err, weir.ErrUnavailable) && ctx.Err() == nil {
						t.Error(err)
						return
					}
					select {
					case <-ctx.Done():
					case <-time.After(20 * time.Millisecond):
					}
				}
			})
			return w
		}
		first := openShards(t, remains{shards[0]}, remains{shards[1]}, remains{shards[2]})
		w, err := weir.OpenStore(t.Context(), first, weir.Options{Logger: silent})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.EnsureTopic(t.Context(), weir.Topic{Name: "orders", Partitions: 6}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		logs := []*weir.Log{open(), open()}
		sent := map[string]int{}
		for step := range 240 {
			switch step % 80 {
			case 10:
				shards[1+r.IntN(2)].down.Store(true)
			case 30:
				n := r.IntN(2)
				if err := logs[n].Close(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, weir.ErrUnavailable) {
					t.Error(err)
				}
				logs[n] = open()
			case 60:
				for _, s := range shards {
					s.down.Store(false)
				}
			}
			key := fmt.Sprint("key ", r.IntN(20))
			_, err := logs[r.IntN(2)].Publish(t.Context(), weir.Event{Topic: "orders", Key: []byte(key), Value: strconv.AppendInt(nil, int64(sent[key]+1), 10)})
			switch {
			case err == nil:
				sent[key]++
			case !errors.Is(err, eventlog.ErrUnavailable):
				t.Fatal(err)
			}
			if r.IntN(10) == 0 { // let consumers get some way
				select {
				case <-h.more:
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
		for _, s := range shards {
			s.down.Store(false)
		}
		for n := range 40 { // each key through each process: every shard is used again by both
			key, until := fmt.Sprint("key ", n/2), time.Now().Add(time.Minute)
			for {
				_, err := logs[n%2].Publish(t.Context(), weir.Event{Topic: "orders", Key: []byte(key), Value: strconv.AppendInt(nil, int64(sent[key]+1), 10)})
				if err == nil {
					break
				}
				if !errors.Is(err, eventlog.ErrUnavailable) || time.Now().After(until) {
					t.Fatal(err)
				}
			}
			sent[key]++
		}
		limit := time.After(time.Minute)
		for done := false; !done; {
			h.mu.Lock()
			done = fmt.Sprint(h.last) == fmt.Sprint(sent)
			if len(h.wrong) > 0 {
				t.Fatal(h.wrong)
			}
			h.mu.Unlock()
			if done {
				break
			}
			select {
			case <-h.more:
			case <-limit:
				t.Fatalf("handled %v\nsent    %v", h.last, sent)
			}
		}
		stop()
		consuming.Wait()
		for _, w := range logs {
			if err := w.Close(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
}
