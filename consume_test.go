package weir_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir"
)

func TestEachGroupGetsAllEventsInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		want := numbered("e", 30)
		publish(t, w, "orders", want[:10]...)
		var a, b seen
		consume(t, w, weir.Subscription{Group: "a", Topics: []string{"orders"}, Handler: a.note})
		publish(t, w, "orders", want[10:20]...)
		consume(t, w, weir.Subscription{Group: "b", Topics: []string{"orders"}, Handler: b.note})
		publish(t, w, "orders", want[20:]...)
		for name, got := range map[string]*seen{"a": &a, "b": &b} {
			if v := values(got.wait(t, 30)); !slices.Equal(v, want) {
				t.Errorf("group %s got %q", name, v)
			}
		}
	})
}

func TestAllPartitionsAreConsumed(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 3)
		for i := range 25 {
			publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
		}
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		partitions, all := map[int32]bool{}, map[string]bool{}
		for _, e := range got.wait(t, 25) {
			partitions[e.Partition], all[string(e.Value)] = true, true
		}
		if len(partitions) != 3 || len(all) != 25 {
			t.Errorf("25 events: %d different ones from %d partitions", len(all), len(partitions))
		}
	})
}

func TestAGroupGoesOnWhereItWas(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "1", "2", "3")
		var first, second seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: first.note})
		first.wait(t, 3)
		closeConsumer(t, c)
		publish(t, w, "orders", "4", "5")
		consume(t, s.open(t), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: second.note})
		if v := values(second.wait(t, 2)); !slices.Equal(v, []string{"4", "5"}) {
			t.Errorf("after a clean stop: %q", v)
		}
	})
}

func TestANewGroupStartsWhereItIsTold(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "old")
		var got seen
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Start: weir.Latest, Handler: got.note})
		assigned(t, 1, c)
		publish(t, w, "orders", "new")
		if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"new"}) {
			t.Errorf("from the latest: %q", v)
		}
	})
}

// batches keeps what a BatchHandler got.
type batches struct{ ch chan []weir.Event }

func newBatches() *batches { return &batches{make(chan []weir.Event, 1000)} }

func (b *batches) note(_ context.Context, events []weir.Event) error {
	b.ch <- events
	return nil
}

func TestBatchesKeepOrderAndBounds(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		want := numbered("e", 57)
		got := newBatches()
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, BatchHandler: got.note, MinBatch: 5, MaxBatch: 10, MaxWait: 50 * time.Millisecond})
		publish(t, w, "orders", want[:5]...)
		publish(t, w, "orders", want[5:]...)
		var all []string
		for len(all) < len(want) {
			batch := next(t, got.ch)
			if len(batch) > 10 {
				t.Errorf("a batch of %d, MaxBatch is 10", len(batch))
			}
			if len(batch) < 5 && len(all)+len(batch) < len(want) {
				t.Errorf("a batch of %d where more were there, MinBatch is 5", len(batch))
			}
			all = append(all, values(batch)...)
		}
		if !slices.Equal(all, want) {
			t.Errorf("got %q", all)
		}
	})
}

func TestASmallBatchWaitsForMaxWaitOnly(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		got := newBatches()
		const wait = 200 * time.Millisecond
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, BatchHandler: got.note, MinBatch: 5, MaxWait: wait})
		began := time.Now()
		publish(t, w, "orders", "alone")
		if batch := next(t, got.ch); len(batch) != 1 {
			t.Errorf("got %q", values(batch))
		}
		if took := time.Since(began); took < wait {
			t.Errorf("it came after %v, MaxWait is %v", took, wait)
		}
	})
}

func TestAFullBatchWaitsForNothing(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	got := newBatches()
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, BatchHandler: got.note, MinBatch: 5, MaxBatch: 5, MaxWait: time.Hour})
	publish(t, w, "orders", numbered("e", 10)...)
	for range 2 {
		if batch := next(t, got.ch); len(batch) != 5 {
			t.Errorf("got %q", values(batch))
		}
	}
}

func TestConcurrencyBoundsRunningHandlers(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 8)
	for i := range 80 {
		publish(t, w, "orders", fmt.Sprintf("key%d=%d", i, i))
	}
	var mu sync.Mutex
	running, most := 0, 0
	full := make(chan struct{})
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Concurrency: 3, Handler: func(ctx context.Context, e weir.Event) error {
		mu.Lock()
		running++
		if most = max(most, running); running == 3 {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		mu.Unlock()
		<-full // so that three run at once, if they may
		mu.Lock()
		running--
		mu.Unlock()
		return got.note(ctx, e)
	}})
	got.wait(t, 80)
	if most != 3 {
		t.Errorf("%d handlers ran at once, Concurrency is 3", most)
	}
}

func TestSubscriptionsThatCannotWorkAreRefused(t *testing.T) {
	w := newSite(t, "memory").open(t)
	handler := func(context.Context, weir.Event) error { return nil }
	batch := func(context.Context, []weir.Event) error { return nil }
	good := weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: handler}
	for says, change := range map[string]func(*weir.Subscription){
		"no Group":            func(s *weir.Subscription) { s.Group = "" },
		"no Topics":           func(s *weir.Subscription) { s.Topics = nil },
		"needs a Handler":     func(s *weir.Subscription) { s.Handler = nil },
		"and not both":        func(s *weir.Subscription) { s.BatchHandler = batch },
		"need a BatchHandler": func(s *weir.Subscription) { s.MinBatch = 2 },
		"MinBatch is 5":       func(s *weir.Subscription) { s.Handler, s.BatchHandler, s.MinBatch, s.MaxBatch = nil, batch, 5, 4 },
		"offset 7":            func(s *weir.Subscription) { s.Start = weir.AtOffset(7) },
		"Concurrency is -1":   func(s *weir.Subscription) { s.Concurrency = -1 },
		"topic name":          func(s *weir.Subscription) { s.Topics = []string{"no spaces"} },
		"dead-letter topic":   func(s *weir.Subscription) { s.Topics = []string{strings.Repeat("x", 247)} },
	} {
		sub := good
		change(&sub)
		if _, err := w.Consume(t.Context(), sub); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q: %v", says, err)
		}
	}
}

func TestATopicThatComesLaterIsConsumed(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		var got seen
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"later"}, Handler: got.note})
		ensure(t, other, "later", 2)
		publish(t, other, "later", "a=1", "b=2", "c=3")
		got.wait(t, 3)
	})
}

// Fifty instances share a group. EventSQL's test has one partition; with ten, several of them work.
func TestFiftyInstancesDeliverExactlyOnceInOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		for _, partitions := range []int{1, 10} {
			t.Run(fmt.Sprint(partitions), func(t *testing.T) {
				topic := fmt.Sprint("orders-", partitions)
				w := s.open(t)
				ensure(t, w, topic, partitions)
				var got seen
				var joined sync.WaitGroup
				for range 50 {
					joined.Go(func() {
						consume(t, w, weir.Subscription{Group: topic, Topics: []string{topic}, Handler: got.note})
					})
				}
				joined.Wait()
				for i := range 50 {
					publish(t, w, topic, fmt.Sprintf("key%d=%d", i%13, i))
				}
				got.wait(t, 50)
				committed(t, w, topic)
				last := map[int32]int64{}
				all := got.all()
				for _, e := range all {
					if want := last[e.Partition]; e.Offset != want {
						t.Errorf("partition %d: offset %d came where %d was next", e.Partition, e.Offset, want)
					}
					last[e.Partition] = e.Offset + 1
				}
				if len(all) != 50 {
					t.Errorf("%d events, 50 were published", len(all))
				}
			})
		}
	})
}

func TestAPartitionMovesWithoutRepetition(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 6)
		stop := make(chan struct{})
		var publishing sync.WaitGroup
		sent := 0
		publishing.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					publish(t, w, "orders", fmt.Sprintf("key%d=%d", sent, sent))
					sent++
				}
			}
		})
		var got seen
		sub := weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note}
		a := consume(t, w, sub)
		assigned(t, 6, a)
		b := consume(t, other, sub)
		assigned(t, 6, a, b)
		closeConsumer(t, a)
		assigned(t, 6, b)
		close(stop)
		publishing.Wait()
		got.wait(t, sent)
		committed(t, w, "g")
		times := map[string]int{}
		for _, e := range got.all() {
			times[string(e.Value)]++
		}
		for v, n := range times {
			if n != 1 {
				t.Errorf("event %s was delivered %d times", v, n)
			}
		}
	})
}

// Waiting goes by Go's clock, which a test may turn on: in a bubble of testing/synctest an hour
// takes no time. The store has to be in memory, as what goes on outside of the bubble is not waited
// for.
func TestTimeCanBeFaked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := weir.Open(t.Context(), "memory:", weir.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer closeLog(t, w)
		ensure(t, w, "orders", 1)
		got := newBatches()
		consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, BatchHandler: got.note, MinBatch: 5, MaxBatch: 10, MaxWait: time.Hour})
		began := time.Now()
		publish(t, w, "orders", "1")
		if batch := <-got.ch; len(batch) != 1 || time.Since(began) < time.Hour || time.Since(began) > time.Hour+time.Minute {
			t.Errorf("a batch of %d after %v", len(batch), time.Since(began))
		}
	})
}
