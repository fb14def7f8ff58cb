package queue_test

import (
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
