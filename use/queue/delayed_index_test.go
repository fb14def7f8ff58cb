package queue_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Whoever asks about a queue does not read the delayed messages of others each time.
func TestDelayedMessagesOfOthersAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const others = 6000
		store := &far{Store: newStore(t)}
		qs := start(t, store)
		theirs, mine := create(t, qs, queue.Spec{Name: "theirs"}), create(t, qs, queue.Spec{Name: "mine", Partitions: 1})
		delay := func(q *queue.Queue, n int) {
			t.Helper()
			for n > 0 {
				var ms []queue.NewMessage
				for range min(n, 1000) {
					ms = append(ms, queue.NewMessage{Value: bytes.Repeat([]byte("x"), 1<<10), Delay: 3 * time.Hour})
				}
				if _, err := q.Enqueue(t.Context(), ms...); err != nil {
					t.Fatal(err)
				}
				n -= len(ms)
			}
		}
		delay(theirs, others/2)
		out, err := mine.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: 3 * time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		delay(theirs, others/2)
		enqueue(t, mine, "done", "fails")
		ms := claimN(t, mine, 2)
		if one(t, must(mine.Ack(t.Context(), ms[0].Receipt)), nil) != nil {
			t.Fatal("not acknowledged")
		}
		if one(t, must(mine.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: 2 * time.Hour}, ms[1].Receipt)), nil) != nil {
			t.Fatal("not given back")
		}
		find := func(q *queue.Queue, id queue.MessageID, want string) {
			t.Helper()
			if c, err := q.Find(t.Context(), id); err != nil || c.State != want {
				t.Errorf("%v is %q, want %q: %v", id, c.State, want, err)
			}
		}
		for _, when := range []string{"while the other queue is there", "after it was deleted", "after a restart"} {
			switch when {
			case "after it was deleted":
				if err := qs.Delete(t.Context(), "theirs"); err != nil {
					t.Fatal(err)
				}
			case "after a restart":
				qs = start(t, store)
				mine = open(t, qs, "mine")
			}
			find(mine, ms[0].ID, queue.Done) // the first one may read all
			before := store.reads.Load()
			for range 3 {
				find(mine, ms[0].ID, queue.Done)
				find(mine, ms[1].ID, queue.Delayed)
				find(mine, out[0].ID, queue.Delayed)
			}
			if n := store.reads.Load() - before; n > 30 {
				t.Errorf("%s: 9 look-ups cost %d reads", when, n)
			}
			page, err := mine.Browse(t.Context(), queue.Browse{State: queue.Delayed})
			if err != nil || len(page.Messages) != 2 || page.Next != (queue.MessageID{}) {
				t.Errorf("%s: %d messages are listed, and go on at %v: %v", when, len(page.Messages), page.Next, err)
			}
			if s, err := mine.Stats(t.Context()); err != nil || s.Delayed != 2 {
				t.Errorf("%s: %+v, %v", when, s, err)
			}
		}
		time.Sleep(4 * time.Hour) // fake time
		synctest.Wait()
		if s, err := mine.Stats(t.Context()); err != nil || s.Delayed != 0 || s.Ready != 2 {
			t.Errorf("when they are due: %+v, %v", s, err)
		}
		find(mine, out[0].ID, queue.Ready)
		find(mine, ms[1].ID, queue.Ready)
	})
}

func must(errs []error, err error) []error {
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return errs
}
