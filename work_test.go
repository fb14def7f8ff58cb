package weir_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// workBubble runs a test on a Log in memory with a queue, in a bubble of fake time.
func workBubble(t *testing.T, settings weir.QueueSettings, test func(t *testing.T, w *weir.Log)) {
	t.Helper()
	workBubbleOn(t, memory.New(), settings, test)
}

func workBubbleOn(t *testing.T, store eventlog.Store, settings weir.QueueSettings, test func(t *testing.T, w *weir.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w, err := weir.OpenStore(t.Context(), store, weir.Options{Poll: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: settings}); err != nil {
			t.Fatal(err)
		}
		test(t, w)
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func enqueueAll(t *testing.T, w *weir.Log, values ...string) (ids []weir.MessageID) {
	t.Helper()
	for _, v := range values {
		at, err := w.Enqueue(t.Context(), "mail", weir.NewMessage{Value: []byte(v)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, at[0].ID)
	}
	return ids
}

func TestMessagesAreHandledOnEachStore(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, err := s.try(t.Context(), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close(context.Background())
		if err := w.EnsureQueue(t.Context(), weir.Queue{Name: "mail"}); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		seen := map[string]int{}
		all := make(chan struct{})
		const total = 200
		for range 2 {
			if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(_ context.Context, j weir.Job) error {
				mu.Lock()
				defer mu.Unlock()
				seen[string(j.Value)]++
				if len(seen) == total {
					all <- struct{}{}
				}
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
		}
		var messages []weir.NewMessage
		for i := range total {
			messages = append(messages, weir.NewMessage{Value: fmt.Append(nil, i)})
		}
		if _, err := w.Enqueue(t.Context(), "mail", messages...); err != nil {
			t.Fatal(err)
		}
		select {
		case <-all:
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d were handled", len(seen), total)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for v, n := range seen {
			if n != 1 {
				t.Errorf("message %s was handled %d times", v, n)
			}
		}
	})
}

func TestWhatAHandlerReturnsDecides(t *testing.T) {
	workBubble(t, weir.QueueSettings{Attempts: 3, Delays: []time.Duration{time.Second}}, func(t *testing.T, w *weir.Log) {
		ids := enqueueAll(t, w, "good", "bad", "hopeless", "later", "panics")
		var mu sync.Mutex
		at := map[string][]time.Duration{}
		handled := func() string {
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(at)
		}
		began := time.Now()
		_, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(_ context.Context, j weir.Job) error {
			mu.Lock()
			defer mu.Unlock()
			at[string(j.Value)] = append(at[string(j.Value)], time.Since(began).Round(100*time.Millisecond))
			switch string(j.Value) {
			case "bad":
				return errors.New("no such address")
			case "hopeless":
				return weir.Permanent(errors.New("not a message"))
			case "later":
				if j.Attempt == 1 {
					return weir.RetryAfter(30*time.Second, nil)
				}
			case "panics":
				panic("oh")
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if got, want := handled(), "map[bad:[0s 1s 2s] good:[0s] hopeless:[0s] later:[0s 30s] panics:[0s 1s 2s]]"; got != want {
			t.Errorf("handled %s\nwant    %s", got, want)
		}
		dead, err := w.DeadMessages(t.Context(), "mail", weir.MessageID{}, 10)
		if err != nil || len(dead) != 3 || dead[0].ID != ids[2] || dead[0].Reason != "rejected" || dead[1].Reason != "attempts" {
			t.Fatalf("dead: %+v, %v", dead, err)
		}
		if c, err := w.FindMessage(t.Context(), "mail", ids[1]); err != nil || c.State != "dead" || c.Error != "no such address" {
			t.Errorf("found %+v, %v", c, err)
		}
		if n, err := w.Redrive(t.Context(), "mail", dead[0]); err != nil || n != 1 {
			t.Errorf("redrive: %d %v", n, err)
		}
		time.Sleep(time.Minute)
		if got, want := handled(), "map[bad:[0s 1s 2s] good:[0s] hopeless:[0s 1m0s] later:[0s 30s] panics:[0s 1s 2s]]"; got != want {
			t.Errorf("after the redrive handled %s\nwant %s", got, want)
		}
	})
}

func TestThePanicOfAJobIsLoggedOnceWithItsStack(t *testing.T) {
	var log lines
	w := newSite(t, "memory").open(t, weir.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Poll: 10 * time.Millisecond})
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Settings: weir.QueueSettings{Attempts: 2, Delays: []time.Duration{time.Millisecond}}}); err != nil {
		t.Fatal(err)
	}
	enqueueAll(t, w, "bad")
	called := make(chan int, 2)
	worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(_ context.Context, j weir.Job) error {
		called <- j.Attempt
		panic("oh")
	}})
	if err != nil {
		t.Fatal(err)
	}
	next(t, called)
	next(t, called)
	if err := worker.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := log.with("work_test.go"); n != 1 {
		t.Errorf("the stack is logged %d times in two attempts, want once", n)
	}
}

func TestALeaseIsKeptWhileTheHandlerRuns(t *testing.T) {
	workBubble(t, weir.QueueSettings{Lease: time.Second}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "slow")
		handled := make(chan error)
		for range 2 {
			if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
				time.Sleep(time.Hour)
				handled <- context.Cause(ctx)
				return nil
			}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := <-handled; err != nil {
			t.Errorf("the handler's context ended: %v", err)
		}
		time.Sleep(2 * time.Hour)
		select {
		case <-handled:
			t.Error("it was handled again")
		default:
		}
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s != (weir.QueueStats{}) {
			t.Errorf("%+v, %v", s, err)
		}
	})
}

func TestAHandlerLearnsThatItsClaimIsLost(t *testing.T) {
	workBubble(t, weir.QueueSettings{Lease: 3 * time.Second}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a")
		began, lost := make(chan struct{}), make(chan error)
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
			began <- struct{}{}
			<-ctx.Done()
			lost <- context.Cause(ctx)
			return ctx.Err()
		}}); err != nil {
			t.Fatal(err)
		}
		<-began
		if err := w.PurgeQueue(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if err := <-lost; !errors.Is(err, weir.ErrClaimLost) {
			t.Errorf("it ended with %v", err)
		}
	})
}

func TestCloseLetsHandlersFinishAndClaimsNoMore(t *testing.T) {
	workBubble(t, weir.QueueSettings{}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a", "b")
		began := make(chan struct{})
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: 1, Handler: func(ctx context.Context, j weir.Job) error {
			began <- struct{}{}
			time.Sleep(time.Minute)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		<-began
		if err := worker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s.Ready != 1 || s.Claimed != 0 {
			t.Errorf("after Close: %+v, %v; want b alone, ready", s, err)
		}
	})
}

// slowToCommit is a store whose commits take a second.
type slowToCommit struct {
	eventlog.Store
	slow atomic.Bool
}

func (s *slowToCommit) Commit(ctx context.Context, entries []eventlog.Entry) ([]eventlog.Outcome, error) {
	if s.slow.Load() {
		time.Sleep(time.Second)
	}
	return s.Store.Commit(ctx, entries)
}

// A handler that has returned holds nothing up: the next message is claimed while the ack is on its
// way, one flush a message and not two.
func TestTheNextMessageIsClaimedWhileTheAckIsOnItsWay(t *testing.T) {
	store := &slowToCommit{Store: memory.New()}
	workBubbleOn(t, store, weir.QueueSettings{Lease: time.Minute}, func(t *testing.T, w *weir.Log) {
		const messages = 20
		enqueueAll(t, w, numbered("m", messages)...)
		store.slow.Store(true)
		began, handled := time.Now(), make(chan struct{}, messages)
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: 1, Handler: func(context.Context, weir.Job) error {
			handled <- struct{}{}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for range messages {
			<-handled
		}
		if took := time.Since(began); took > messages*7/4*time.Second { // one after the other takes 2 s for each; which of both comes first in a commit is the scheduler's
			t.Errorf("%d messages took %v, where a commit takes 1 s", messages, took)
		}
		if err := worker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s.Ready+s.Claimed+s.Waiting != 0 {
			t.Errorf("after Close: %+v, %v; want all acknowledged", s, err)
		}
	})
}

// Acks of many messages go out in one call. Where the store is away for longer than the call waits,
// each is tried again.
func TestAcksAreTriedAgainUntilTheStoreIsBack(t *testing.T) {
	store := &cutOff{Store: memory.New()}
	workBubbleOn(t, store, weir.QueueSettings{Lease: 5 * time.Minute}, func(t *testing.T, w *weir.Log) {
		const messages = 20
		enqueueAll(t, w, numbered("m", messages)...)
		var handled atomic.Int32
		both := make(chan struct{})
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Concurrency: messages, Handler: func(context.Context, weir.Job) error {
			if handled.Add(1) == messages {
				store.away.Store(true)
				time.AfterFunc(25*time.Second, func() { store.away.Store(false) })
				close(both)
			}
			<-both
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // of fake time
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s.Ready+s.Claimed+s.Waiting != 0 || handled.Load() != messages {
			t.Errorf("%+v, %v after %d were handled; want %d, once each, and all acknowledged", s, err, handled.Load(), messages)
		}
		if err := worker.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestCloseCutsOffAHandlerThatDoesNotReturn(t *testing.T) {
	workBubble(t, weir.QueueSettings{Delays: []time.Duration{0}}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a")
		began := make(chan struct{})
		worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
			began <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		if err != nil {
			t.Fatal(err)
		}
		<-began
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		start := time.Now()
		if err := worker.Close(ctx); err != nil || time.Since(start) > 11*time.Second {
			t.Errorf("closed with %v after %v", err, time.Since(start))
		}
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s.Ready+s.Waiting != 1 || s.Claimed != 0 {
			t.Errorf("after Close: %+v, %v; want it given back", s, err)
		}
	})
}

func TestMiddlewareWrapsTheHandlerInOrder(t *testing.T) {
	workBubble(t, weir.QueueSettings{}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a")
		said := make(chan string, 10)
		wrap := func(name string) func(weir.JobHandler) weir.JobHandler {
			return func(next weir.JobHandler) weir.JobHandler {
				return func(ctx context.Context, j weir.Job) error { said <- name; return next(ctx, j) }
			}
		}
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Middleware: []func(weir.JobHandler) weir.JobHandler{wrap("outer"), wrap("inner")},
			Handler: func(context.Context, weir.Job) error { said <- "handler"; return nil }}); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(<-said, <-said, <-said); got != "outer inner handler" && got != "outerinnerhandler" {
			t.Errorf("called %s", got)
		}
	})
}

func TestEnsureQueueSaysWhatDiffers(t *testing.T) {
	workBubble(t, weir.QueueSettings{Attempts: 5}, func(t *testing.T, w *weir.Log) {
		ctx := t.Context()
		if err := w.EnsureQueue(ctx, weir.Queue{Name: "mail", Topic: "mail", Settings: weir.QueueSettings{Attempts: 5}}); err != nil {
			t.Error(err)
		}
		if err := w.EnsureQueue(ctx, weir.Queue{Name: "mail", Settings: weir.QueueSettings{Attempts: 6}}); !errors.Is(err, weir.ErrQueueDiffers) {
			t.Errorf("other attempts: %v", err)
		}
		if err := w.CreateQueue(ctx, weir.Queue{Name: "mail"}); !errors.Is(err, weir.ErrQueueExists) {
			t.Errorf("once more: %v", err)
		}
		var invalid *weir.InvalidError
		if err := w.CreateQueue(ctx, weir.Queue{Name: "a/b"}); !errors.As(err, &invalid) {
			t.Errorf("a strange name: %v", err)
		}
		handler := func(context.Context, weir.Job) error { return nil }
		for _, o := range []weir.WorkOptions{{}, {Queue: "mail"}, {Queue: "none", Handler: handler}, {Queue: "mail", Handler: handler, Concurrency: -1},
			{Queue: "mail", Handler: handler, Lease: 365 * 24 * time.Hour}, {Queue: "mail", Handler: handler, Lease: -1}} {
			if worker, err := w.Work(ctx, o); err == nil {
				t.Errorf("%+v works: %v", o, worker)
			}
		}
	})
}
