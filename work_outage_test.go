package weir_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
)

// onWorkedStore runs a test on each kind of store, with a queue on it. The test may cut the store
// off.
func onWorkedStore(t *testing.T, settings weir.QueueSettings, test func(t *testing.T, w *weir.Log, store *cutOff)) {
	t.Helper()
	onEachStore(t, func(t *testing.T, under eventlog.Store) {
		t.Parallel()
		store := &cutOff{Store: under}
		w, err := weir.OpenStore(t.Context(), store, weir.Options{Poll: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer closeLog(t, w)
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: settings}); err != nil {
			t.Fatal(err)
		}
		test(t, w, store)
	})
}

// A worker is told to stop while the store is away. It waits for the store, and tells it what was
// handled: nothing comes again.
func TestADrainOutlastsAnOutage(t *testing.T) {
	onWorkedStore(t, weir.QueueSettings{Lease: time.Minute, Attempts: 1}, func(t *testing.T, w *weir.Log, store *cutOff) {
		enqueueAll(t, w, "good", "hopeless")
		var began sync.WaitGroup
		began.Add(2)
		finish := make(chan struct{})
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: 2, Handler: func(_ context.Context, j weir.Job) error {
			began.Done()
			<-finish
			if string(j.Value) == "hopeless" {
				return weir.Permanent(errors.New("no such address"))
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		began.Wait()
		store.away.Store(true)
		closed := make(chan error)
		go func() { closed <- worker.Close(t.Context()) }()
		for range 2 { // each has returned, and the store does not hear of it
			finish <- struct{}{}
		}
		eventually(t, "the worker met the outage", func() bool { return store.failed.Load() > 3 })
		select {
		case err := <-closed:
			t.Fatalf("the worker is closed before the store heard of its messages: %v", err)
		default:
		}
		store.away.Store(false)
		if err := next(t, closed); err != nil {
			t.Fatal(err)
		}
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s != (weir.QueueStats{Dead: 1}) {
			t.Errorf("after Close: %+v, %v; want one dead letter, and the other message done", s, err)
		}
	})
}

// The store is away for longer than a worker may take to stop. Close returns in time. What was
// handled is done when the store is back, or comes once more.
func TestADrainThatEndsInAnOutageLosesNothing(t *testing.T) {
	onWorkedStore(t, weir.QueueSettings{Lease: time.Second}, func(t *testing.T, w *weir.Log, store *cutOff) {
		enqueueAll(t, w, "handled", "cut off")
		handled, cut := make(chan int, 10), make(chan struct{}, 10)
		handler := func(ctx context.Context, j weir.Job) error {
			if j.Attempt == 1 && string(j.Value) == "cut off" {
				cut <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			if j.Attempt == 1 {
				<-cut // both are claimed
				store.away.Store(true)
			}
			handled <- j.Attempt
			return nil
		}
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: handler})
		if err != nil {
			t.Fatal(err)
		}
		next(t, handled)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		_ = worker.Close(ctx)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it was closed after %v", took)
		}
		store.away.Store(false)
		if _, err = w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
			handled <- j.Attempt
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		next(t, handled) // the one that was cut off
		eventually(t, "all is done", func() bool {
			s, err := w.QueueStats(t.Context(), "mail")
			return err == nil && s == weir.QueueStats{}
		})
		if n := len(handled); n > 1 {
			t.Errorf("the message that was handled is handled %d times more", n)
		}
	})
}

// One message fails for ever, at once each time, and the handler of another panics for ever; that
// of a third hangs and hears nothing. The others are handled meanwhile.
func TestHandlersThatFailForEverOrHangHoldUpNobody(t *testing.T) {
	onWorkedStore(t, weir.QueueSettings{Lease: time.Second, Attempts: -1, Delays: []time.Duration{0}}, func(t *testing.T, w *weir.Log, _ *cutOff) {
		const good = 100
		enqueueAll(t, w, "fails", "hangs", "panics")
		enqueueAll(t, w, numbered("good", good)...)
		handled, hang := make(chan string, 1000), make(chan struct{})
		failed := map[string]chan int{"fails": make(chan int, 1), "panics": make(chan int, 1)}
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: 2, Handler: func(_ context.Context, j weir.Job) error {
			switch string(j.Value) {
			case "hangs":
				<-hang
			case "fails", "panics":
				select {
				case failed[string(j.Value)] <- j.Attempt:
				default:
				}
				if string(j.Value) == "panics" {
					panic("oh")
				}
				return errors.New("no")
			}
			handled <- string(j.Value)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for range good {
			seen[next(t, handled)]++
		}
		if len(seen) != good {
			t.Errorf("%d messages were handled, want %d, once each", len(seen), good)
		}
		for _, tried := range failed {
			for first := next(t, tried); next(t, tried) < first+2; { // it is tried on
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := worker.Close(ctx); err == nil {
			t.Error("a worker is closed whose handler hangs")
		}
		eventually(t, "all three are there for the next worker", func() bool {
			s, err := w.QueueStats(t.Context(), "mail")
			return err == nil && s.Ready+s.Waiting == 3 && s.Claimed == 0
		})
		close(hang)
	})
}
