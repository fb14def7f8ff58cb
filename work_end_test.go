package weir_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weir-log/weir"
	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
)

// The lease that is extended finds the message done, since the ack of the handler's own transaction
// has reached the queue: no claim is lost.
func TestAHandlerThatHasCommittedItsAckIsNotCutOff(t *testing.T) {
	s := newSite(t, "postgres")
	w := s.open(t)
	const lease = time.Second
	if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: weir.QueueSettings{Lease: lease}}); err != nil {
		t.Fatal(err)
	}
	pool := bills(t, s.url)
	ended := make(chan error, 1)
	if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
		if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return j.AckTx(ctx, tx) }); err != nil {
			ended <- err
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(3 * lease): // nine times it was to be extended
		}
		ended <- context.Cause(ctx)
		return nil
	}}); err != nil {
		t.Fatal(err)
	}
	enqueueAll(t, w, "a")
	if err := <-ended; err != nil {
		t.Errorf("after its ack was committed the handler was cut off: %v", err)
	}
}

// The lease ends while the store is away. Nobody else has claimed the message: so the ack is taken
// when the store is back.
func TestAnAckIsTriedAgainAfterTheLease(t *testing.T) {
	store := &cutOff{Store: memory.New()}
	workBubbleOn(t, store, weir.QueueSettings{Lease: 5 * time.Second}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a")
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
			err := w.PauseQueue(ctx, "mail") // it is not claimed again
			store.away.Store(true)
			time.AfterFunc(time.Minute, func() { store.away.Store(false) })
			return err
		}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute) // of fake time
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s != (weir.QueueStats{}) {
			t.Errorf("%+v, %v; want the message acknowledged", s, err)
		}
	})
}

// A worker that cannot reach the store stops when its lease ends, for others may have the message
// from then on. That is no failure of the handler's.
func TestAHandlerIsCutOffWhenItsLeaseEndsWithoutTheStore(t *testing.T) {
	store := &cutOff{Store: memory.New()}
	workBubbleOn(t, store, weir.QueueSettings{Lease: 6 * time.Second, Attempts: 1}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "a")
		began, causes, attempts := time.Now(), make(chan error, 1), make(chan int, 10)
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
			attempts <- j.Attempt
			if len(attempts) > 1 {
				return nil
			}
			if err := w.PauseQueue(ctx, "mail"); err != nil {
				return err
			}
			store.away.Store(true)
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}}); err != nil {
			t.Fatal(err)
		}
		if err := <-causes; !errors.Is(err, weir.ErrClaimLost) || time.Since(began) > 7*time.Second {
			t.Errorf("after %v it ended with %v", time.Since(began), err)
		}
		store.away.Store(false)
		time.Sleep(time.Minute)
		if err := w.ResumeQueue(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s, err := w.QueueStats(t.Context(), "mail"); err != nil || s != (weir.QueueStats{}) || len(attempts) != 2 || <-attempts+<-attempts != 2 {
			t.Errorf("%+v, %v; want it handled twice, both times as the first attempt", s, err)
		}
	})
}

// A deploy is no failed attempt: with one attempt alone the message of a handler that is cut off is
// no dead letter.
func TestAStopCostsNoAttempt(t *testing.T) {
	eachStore(t, func(t *testing.T, s site) {
		w := s.open(t)
		if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Settings: weir.QueueSettings{Attempts: 1}}); err != nil {
			t.Fatal(err)
		}
		enqueueAll(t, w, "a")
		attempts := make(chan int)
		work := func(handler weir.JobHandler) *weir.Worker {
			worker, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: handler})
			if err != nil {
				t.Fatal(err)
			}
			return worker
		}
		first := work(func(ctx context.Context, j weir.Job) error {
			attempts <- j.Attempt
			<-ctx.Done()
			return context.Cause(ctx)
		})
		<-attempts
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_ = first.Close(over)
		work(func(ctx context.Context, j weir.Job) error {
			attempts <- j.Attempt
			return nil
		})
		select {
		case n := <-attempts:
			if n != 1 {
				t.Errorf("it comes again as attempt %d", n)
			}
		case <-time.After(limit):
			t.Error("it does not come again")
		}
		if dead, err := w.DeadMessages(t.Context(), "mail", weir.MessageID{}, 10); len(dead) > 0 || err != nil {
			t.Errorf("dead: %+v, %v", dead, err)
		}
	})
}

func TestAHandlerThatTakesTooLongHasFailed(t *testing.T) {
	workBubble(t, weir.QueueSettings{Attempts: 2, Delays: []time.Duration{0}}, func(t *testing.T, w *weir.Log) {
		enqueueAll(t, w, "hangs", "slow")
		began, causes := time.Now(), make(chan error, 10)
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Timeout: 5 * time.Second, Handler: func(ctx context.Context, j weir.Job) error {
			if string(j.Value) == "slow" {
				time.Sleep(4 * time.Second)
				return ctx.Err()
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return ctx.Err()
		}}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-causes; !errors.Is(err, weir.ErrHandlerTimeout) {
				t.Errorf("its context ended with %v", err)
			}
		}
		if took := time.Since(began); took < 10*time.Second || took > 12*time.Second {
			t.Errorf("two attempts of 5 s took %v", took)
		}
		time.Sleep(time.Second)
		dead, err := w.DeadMessages(t.Context(), "mail", weir.MessageID{}, 10)
		if err != nil || len(dead) != 1 || dead[0].Attempts != "2" || !strings.Contains(dead[0].Error, "longer than WorkOptions.Timeout, 5s") {
			t.Errorf("dead: %+v, %v", dead, err)
		}
		if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Timeout: -1, Handler: func(context.Context, weir.Job) error { return nil }}); err == nil {
			t.Error("a negative Timeout works")
		}
	})
}

// ahead is a store whose clock is ahead of the machine's, as queues read it.
type ahead struct {
	eventlog.Store
	by time.Duration
}

func (s ahead) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	return s.moved(kvs), err
}

func (s ahead) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.Get(ctx, keys, maxBytes)
	return s.moved(kvs), err
}

func (s ahead) moved(kvs []eventlog.KeyValue) []eventlog.KeyValue {
	for i := range kvs {
		if kvs[i].Now != 0 {
			kvs[i].Now += eventlog.Timestamp(s.by.Milliseconds())
		}
	}
	return kvs
}

// The worker's clock is an hour behind the store's, or ahead of it. Its lease is extended while the
// handler runs, the handler is not cut off, and a pause of half a second lasts as long.
func TestAWorkerWhoseClockIsWrongKeepsItsLease(t *testing.T) {
	keeps := func(by time.Duration) func(*testing.T, eventlog.Store) {
		return func(t *testing.T, under eventlog.Store) {
			t.Parallel()
			w, err := weir.OpenStore(t.Context(), ahead{under, by}, weir.Options{Poll: 10 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer closeLog(t, w)
			const lease, pause = 3 * time.Second, 500 * time.Millisecond
			if err := w.CreateQueue(t.Context(), weir.Queue{Name: "mail", Partitions: 1, Settings: weir.QueueSettings{Lease: lease, Delays: []time.Duration{pause}}}); err != nil {
				t.Fatal(err)
			}
			id := enqueueAll(t, w, "slow")[0]
			began, finish, handled := make(chan time.Time, 10), make(chan struct{}), make(chan error, 10)
			if _, err := w.Work(t.Context(), weir.WorkOptions{Queue: "mail", Handler: func(ctx context.Context, j weir.Job) error {
				began <- time.Now()
				if j.Attempt > 1 {
					return nil
				}
				select {
				case <-finish:
				case <-ctx.Done():
				}
				handled <- context.Cause(ctx)
				return errors.New("refused")
			}}); err != nil {
				t.Fatal(err)
			}
			claimed := next(t, began)
			ends := func() time.Time {
				c, err := w.FindMessage(t.Context(), "mail", id)
				if err != nil {
					t.Fatal(err)
				}
				return c.Until
			}
			first := ends()
			if left := first.Sub(claimed.Add(by)); left < time.Second || left > lease+limit {
				t.Errorf("a lease of %v has %v left when the handler begins", lease, left)
			}
			eventually(t, "the lease is extended", func() bool { return ends().After(first) })
			failed := time.Now()
			close(finish)
			if err := next(t, handled); err != nil {
				t.Errorf("the handler's context ended: %v", err)
			}
			if again := next(t, began); again.Sub(failed) < pause-20*time.Millisecond {
				t.Errorf("it was handled again after %v, and its pause is %v", again.Sub(failed), pause)
			}
			eventually(t, "it is done", func() bool {
				s, err := w.QueueStats(t.Context(), "mail")
				return err == nil && s == weir.QueueStats{}
			})
		}
	}
	t.Run("behind", func(t *testing.T) { onEachStore(t, keeps(time.Hour)) })
	t.Run("ahead", func(t *testing.T) { onEachStore(t, keeps(-time.Hour)) })
}
