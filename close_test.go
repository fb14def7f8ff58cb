package weir_test

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weir-log/weir"
)

// blocking is a Handler that says when it begins and waits for a word.
type blocking struct {
	begun chan weir.Event
	go_on chan struct{}
	ended chan error // why its context ended
}

func newBlocking() *blocking {
	return &blocking{begun: make(chan weir.Event, 1000), go_on: make(chan struct{}), ended: make(chan error, 100)}
}

func (b *blocking) handle(ctx context.Context, e weir.Event) error {
	b.begun <- e
	select {
	case <-b.go_on:
		return nil
	case <-ctx.Done():
		b.ended <- context.Cause(ctx)
		return ctx.Err()
	}
}

func TestCloseLetsARunningHandlerFinishAndCommitsIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		for _, whole := range []bool{false, true} { // the consumer, or the Log
			w, other := s.open(t), s.open(t)
			topic := map[bool]string{false: "one", true: "two"}[whole]
			ensure(t, w, topic, 1)
			publish(t, w, topic, "running", "waiting")
			b := newBlocking()
			c := consume(t, w, weir.Subscription{Group: topic, Topics: []string{topic}, Handler: b.handle})
			next(t, b.begun)
			closed := make(chan error)
			go func() {
				if whole {
					closed <- w.Close(context.Background())
				} else {
					closed <- c.Close(context.Background())
				}
			}()
			eventually(t, "Close stops further calls", func() bool { return c.Closing() })
			close(b.go_on)
			if err := next(t, closed); err != nil {
				t.Error(err)
			}
			var got seen
			consume(t, other, weir.Subscription{Group: topic, Topics: []string{topic}, Handler: got.note})
			if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"waiting"}) {
				t.Errorf("the next consumer got %q", v)
			}
			if len(b.begun) != 0 {
				t.Error("a further call began")
			}
		}
	})
}

func TestCloseEndsTheContextOfAHandlerThatIsLate(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "slow")
	b := newBlocking()
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: b.handle})
	next(t, b.begun)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Close(ctx)
	if err == nil || !strings.Contains(err.Error(), "orders/0 has been at offset 0") {
		t.Errorf("Close: %v", err)
	}
	if cause := next(t, b.ended); !errors.Is(cause, weir.ErrClosed) {
		t.Errorf("the handler's context ended with %v", cause)
	}
	var got seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
	got.wait(t, 1) // it was not committed
}

func TestAHandlerThatHangsIsReportedAndNotWaitedFor(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w, other := s.open(t), s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "fine", "hangs")
		hang := make(chan struct{})
		defer close(hang)
		begun := make(chan struct{})
		if _, err := w.Consume(t.Context(), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(_ context.Context, e weir.Event) error {
			if e.Offset == 1 {
				close(begun)
				<-hang // whatever its context says
			}
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		next(t, begun)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		err := w.Close(ctx)
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("Close took %v of 2 s", took)
		}
		if err == nil || !strings.Contains(err.Error(), "the handler of orders/0 has been at offset 1") {
			t.Errorf("Close: %v", err)
		}
		var got seen
		consume(t, other, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		if v := values(got.wait(t, 1)); !slices.Equal(v, []string{"hangs"}) {
			t.Errorf("the next consumer got %q: what was handled before was to be committed", v)
		}
	})
}

func TestCloseDoesNotWaitForARetry(t *testing.T) {
	w := newSite(t, "memory").open(t)
	ensure(t, w, "orders", 1)
	publish(t, w, "orders", "bad")
	var main failing
	c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: main.handle, Retry: weir.Retry{First: time.Hour, Max: time.Hour}})
	main.wait(t, 1)
	closeConsumer(t, c)
	var later seen
	consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: later.note})
	later.wait(t, 1)
}

func TestCloseTwiceIsHarmless(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(context.Context, weir.Event) error { return nil }})
		for range 2 {
			closeConsumer(t, c)
		}
		for range 2 {
			closeLog(t, w)
		}
	})
}

func TestWhatWasPublishedBeforeCloseIsThereAfterwards(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		acked := make(chan int)
		go func() {
			n := 0
			for {
				if _, err := w.Publish(context.Background(), events("orders", "v")...); err != nil {
					if !errors.Is(err, weir.ErrClosed) {
						t.Errorf("publish while the log closes: %v", err)
					}
					acked <- n
					return
				}
				n++
			}
		}()
		eventually(t, "some events are there", func() bool {
			g, err := w.Bounds(t.Context(), "orders")
			return err == nil && g[0].Next > 10
		})
		closeLog(t, w)
		n := next(t, acked)
		var got seen
		consume(t, s.open(t), weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: got.note})
		got.wait(t, n)
	}, "sqlite", "postgres", "memory")
}

// A closed Log says so, whatever it is asked. Methods are found by reflection, so that a new one
// cannot be forgotten.
func TestEverythingFailsWithErrClosedAfterClose(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		ensure(t, w, "orders", 1)
		publish(t, w, "orders", "v")
		used := make(chan error, 1)
		b := newBlocking()
		c := consume(t, w, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: func(ctx context.Context, e weir.Event) error {
			err := b.handle(ctx, e)
			_, publishing := w.Publish(ctx, events("orders", "of a handler that Close waits for")...)
			used <- publishing
			return err
		}})
		e := next(t, b.begun)
		closed := make(chan error)
		go func() { closed <- w.Close(context.Background()) }()
		eventually(t, "Close stops further calls", func() bool { return c.Closing() })
		close(b.go_on)
		if err := errors.Join(next(t, used), next(t, closed)); err != nil {
			t.Fatal(err)
		}

		calls := map[string]func() error{
			"Log.AlterTopic":      func() error { return w.AlterTopic(t.Context(), "orders", nil) },
			"Log.Bounds":          func() error { _, err := w.Bounds(t.Context(), "orders"); return err },
			"Log.Consume":         func() error { _, err := w.Consume(t.Context(), weir.Subscription{}); return err },
			"Log.DeleteGroup":     func() error { return w.DeleteGroup(t.Context(), "g") },
			"Log.DeleteTopic":     func() error { return w.DeleteTopic(t.Context(), "orders") },
			"Log.EnsureTopic":     func() error { return w.EnsureTopic(t.Context(), weir.Topic{Name: "orders"}) },
			"Log.Group":           func() error { _, err := w.Group(t.Context(), "g"); return err },
			"Log.Groups":          func() error { _, err := w.Groups(t.Context()); return err },
			"Log.Healthy":         w.Healthy,
			"Log.Publish":         func() error { _, err := w.Publish(t.Context(), e); return err },
			"Log.PublishOnce":     func() error { _, _, err := w.PublishOnce(t.Context(), "key", e); return err },
			"Log.PublishSQLTx":    func() error { return w.PublishSQLTx(t.Context(), nil, e) },
			"Log.PublishTx":       func() error { return w.PublishTx(t.Context(), nil, e) },
			"Log.RaisePartitions": func() error { return w.RaisePartitions(t.Context(), "orders", 2) },
			"Log.Read": func() (last error) {
				for _, err := range w.Read(t.Context(), weir.TopicPartition{Topic: "orders"}, weir.Earliest) {
					last = err
				}
				return last
			},
			"Log.CreateQueue":    func() error { return w.CreateQueue(t.Context(), weir.Queue{Name: "q"}) },
			"Log.EnsureQueue":    func() error { return w.EnsureQueue(t.Context(), weir.Queue{Name: "q"}) },
			"Log.Queue":          func() error { _, err := w.Queue(t.Context(), "q"); return err },
			"Log.Queues":         func() error { _, err := w.Queues(t.Context()); return err },
			"Log.AlterQueue":     func() error { return w.AlterQueue(t.Context(), "q", nil) },
			"Log.PauseQueue":     func() error { return w.PauseQueue(t.Context(), "q") },
			"Log.ResumeQueue":    func() error { return w.ResumeQueue(t.Context(), "q") },
			"Log.PurgeQueue":     func() error { return w.PurgeQueue(t.Context(), "q") },
			"Log.DeleteQueue":    func() error { return w.DeleteQueue(t.Context(), "q") },
			"Log.Enqueue":        func() error { _, err := w.Enqueue(t.Context(), "q", weir.NewMessage{}); return err },
			"Log.EnqueueTx":      func() error { return w.EnqueueTx(t.Context(), nil, "q", weir.NewMessage{}) },
			"Log.EnqueueSQLTx":   func() error { return w.EnqueueSQLTx(t.Context(), nil, "q", weir.NewMessage{}) },
			"Log.QueueStats":     func() error { _, err := w.QueueStats(t.Context(), "q"); return err },
			"Log.BrowseQueue":    func() error { _, err := w.BrowseQueue(t.Context(), "q", weir.Browse{}); return err },
			"Log.FindMessage":    func() error { _, err := w.FindMessage(t.Context(), "q", weir.MessageID{}); return err },
			"Log.DeadMessages":   func() error { _, err := w.DeadMessages(t.Context(), "q", weir.MessageID{}, 1); return err },
			"Log.Redrive":        func() error { _, err := w.Redrive(t.Context(), "q"); return err },
			"Log.RedriveAll":     func() error { _, err := w.RedriveAll(t.Context(), "q", 0); return err },
			"Log.DiscardDead":    func() error { _, err := w.DiscardDead(t.Context(), "q"); return err },
			"Log.SetSchedule":    func() error { _, err := w.SetSchedule(t.Context(), "q", weir.Schedule{}); return err },
			"Log.Schedule":       func() error { _, err := w.Schedule(t.Context(), "q", "s"); return err },
			"Log.Schedules":      func() error { _, err := w.Schedules(t.Context(), "q"); return err },
			"Log.DeleteSchedule": func() error { return w.DeleteSchedule(t.Context(), "q", "s") },
			"Log.Work": func() error {
				_, err := w.Work(t.Context(), weir.WorkOptions{Queue: "q", Handler: func(context.Context, weir.Job) error { return nil }})
				return err
			},
			"Log.AppendAll":        func() error { _, err := w.AppendAll(t.Context()); return err },
			"Log.AwaitProjection":  func() error { return w.AwaitProjection(t.Context(), "p", "c", "s") },
			"Log.Categories":       func() error { _, err := w.Categories(t.Context()); return err },
			"Log.Category":         func() error { _, err := w.Category(t.Context(), "c"); return err },
			"Log.CreateCategory":   func() error { _, err := w.CreateCategory(t.Context(), weir.CategorySpec{Name: "c"}); return err },
			"Log.DeleteProjection": func() error { return w.DeleteProjection(t.Context(), "p") },
			"Log.EnsureCategory":   func() error { _, err := w.EnsureCategory(t.Context(), weir.CategorySpec{Name: "c"}); return err },
			"Log.Manage": func() error {
				_, err := w.Manage(t.Context(), weir.ProcessManager{Name: "p", Categories: []string{"c"}, React: func(context.Context, weir.CategoryEvent) ([]weir.StreamPart, error) { return nil, nil }})
				return err
			},
			"Log.PauseProjection":   func() error { return w.PauseProjection(t.Context(), "p") },
			"Log.Project":           func() error { _, err := w.Project(t.Context(), weir.Projection{Name: "p"}); return err },
			"Log.Projection":        func() error { _, err := w.Projection(t.Context(), "p"); return err },
			"Log.Projections":       func() error { _, err := w.Projections(t.Context()); return err },
			"Log.RebuildProjection": func() error { return w.RebuildProjection(t.Context(), "p") },
			"Log.ResumeProjection":  func() error { return w.ResumeProjection(t.Context(), "p") },
			"Log.ResetGroup":        func() error { return w.ResetGroup(t.Context(), "g", "orders", weir.Earliest) },
			"Log.Topics":            func() error { _, err := w.Topics(t.Context()); return err },
			"Consumer.Seek":         func() error { return c.Seek(t.Context(), weir.Earliest) },
			"Event.CommitTx":        func() error { return e.CommitTx(t.Context(), nil) },
			"Event.CommitSQLTx":     func() error { return e.CommitSQLTx(t.Context(), nil) },
			"Log.Publish, nothing":  func() error { _, err := w.Publish(t.Context()); return err },
		}
		for name, call := range calls {
			if err := call(); !errors.Is(err, weir.ErrClosed) {
				t.Errorf("%s: %v, want ErrClosed", name, err)
			}
		}
		for _, of := range []reflect.Type{reflect.TypeFor[*weir.Log](), reflect.TypeFor[*weir.Consumer](), reflect.TypeFor[*weir.Event]()} {
			for i := range of.NumMethod() {
				m := of.Method(i)
				name := of.Elem().Name() + "." + m.Name
				if _, listed := calls[name]; canFail(m.Type) && !listed && m.Name != "Close" {
					t.Errorf("%s can fail, and is not in the list of this test", name)
				}
			}
		}
		if err := errors.Join(w.Close(t.Context()), c.Close(t.Context())); err != nil {
			t.Errorf("a second Close: %v", err)
		}

		open := s.open(t)
		alone := consume(t, open, weir.Subscription{Group: "g", Topics: []string{"orders"}, Handler: (&seen{}).note})
		closeConsumer(t, alone)
		if err := alone.Seek(t.Context(), weir.Earliest); !errors.Is(err, weir.ErrClosed) {
			t.Errorf("Seek of a consumer that was closed: %v, want ErrClosed", err)
		}
	})
}

// canFail reports whether a function returns an error, or yields some.
func canFail(f reflect.Type) bool {
	for i := range f.NumOut() {
		out := f.Out(i)
		if out == reflect.TypeFor[error]() || out == reflect.TypeFor[iter.Seq2[weir.Event, error]]() {
			return true
		}
	}
	return false
}
