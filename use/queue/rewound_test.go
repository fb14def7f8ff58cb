package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// A store lost its end, as a standby that lagged does. A message whose acknowledgement is lost comes again, and not only once somebody enqueues another.
func TestAMessageWhoseAckTheStoreLostComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := begin(t, store, time.Second)
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a")
		got := claimN(t, q, 1)
		restore := store.Backup()
		if errs, err := q.Ack(t.Context(), got[0].Receipt); one(t, errs, err) != nil {
			t.Fatal(errs)
		}
		came := make(chan []queue.Message, 1)
		go func() {
			again, err := q.Claim(t.Context(), queue.Claim{Wait: 2 * time.Minute})
			if err != nil {
				t.Error(err)
			}
			came <- again
		}()
		synctest.Wait()
		restore(false)
		if again := values(<-came); again != "a " {
			t.Errorf("claimed %q, want a, which is not acknowledged any more", again)
		}
	})
}

// What is enqueued after that has the offset of what is lost, and its own value.
func TestAMessageIsNotTakenForOneThatTheStoreLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := begin(t, store, time.Second)
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		restore := store.Backup()
		enqueue(t, q, "lost")
		if got := values(claimN(t, q, 1)); got != "lost " {
			t.Fatalf("claimed %q", got)
		}
		restore(false)
		time.Sleep(3 * time.Second) // three polls
		enqueue(t, q, "new")
		if got := values(claimN(t, q, 1)); got != "new " {
			t.Errorf("claimed %q, want new", got)
		}
	})
}

// A delayed message is due, and its move waits for the store, which loses it. The next message at its offset is not taken for moved.
func TestADelayedMessageIsNotTakenForOneThatTheStoreLost(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		slow := &ahead{Store: store}
		p := begin(t, slow, time.Hour)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		delayed(t, q, "first", time.Second) // makes the wheel
		time.Sleep(5 * time.Second)
		if got := values(claimN(t, q, 1)); got != "first " {
			t.Fatalf("claimed %q", got)
		}
		restore := store.Backup()
		time.Sleep(10 * time.Second)
		due := time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)
		delayed(t, q, "lost", time.Until(due))
		time.Sleep(300 * time.Millisecond) // it was read, and the wheel's leader need not say again that it is
		release := slow.holdCommits()
		other := make(chan error, 1)
		go func() {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("other")})
			other <- err
		}()
		time.Sleep(2 * time.Second) // it is due: its move waits behind the commit in flight
		restore(false)
		release()
		<-other
		time.Sleep(5 * time.Second)
		delayed(t, q, "new", time.Until(due.Add(64*time.Second))) // in the same slot
		time.Sleep(100 * time.Second)
		found := false
		for _, m := range claimN(t, q, 10) {
			found = found || string(m.Value) == "new"
		}
		if !found {
			t.Error("the message that was enqueued after the store lost its end never came")
		}
	})
}

// The store loses a change of the queue's settings, which this process knows.
func TestAQueueWhoseChangeTheStoreLostIsServed(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		store := &ahead{Store: under}
		p := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a")
		lease := q.Info().Settings.Lease
		restore := under.Backup()
		if _, err := p.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Lease = time.Minute; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Now(t.Context()); err != nil {
			t.Fatal(err)
		}
		restore(false)
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var commits atomic.Int64
		count := func() {
			if commits.Add(1) > 100 {
				time.Sleep(time.Minute) // so that time passes where it goes on for ever
			}
		}
		store.ofCommit.Store(&count)
		got, err := q.Claim(ctx, queue.Claim{})
		if values(got) != "a " || commits.Load() > 100 {
			t.Errorf("claimed %q, %v, after %d commits", values(got), err, commits.Load())
		}
		if now := q.Info().Settings.Lease; now != lease {
			t.Errorf("the lease is %v, want %v: the change is lost", now, lease)
		}
	})
}
