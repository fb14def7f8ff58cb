package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A message comes while a queue is purged, so it stays, and keeps its unique key until it is done:
// also if it moves on into the wheel. The keys of purged messages are free.
func TestAMessageThatAPurgeLeavesKeepsItsUniqueKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		slow := &hurried{Store: store}
		p, other := begin(t, slow, 20*time.Millisecond), begin(t, store, 20*time.Millisecond)
		create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true, Lease: time.Minute}})
		q := open(t, other.Queues, "mail")
		put := func(q *queue.Queue, key string, delay time.Duration) queue.Enqueued {
			t.Helper()
			out, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(key), Unique: key, Delay: delay})
			if err != nil {
				t.Fatal(err)
			}
			return out[0]
		}
		put(q, "purged", 0)
		put(q, "delayed", time.Hour)
		if got := values(claimN(t, q, 10)); got != "purged " {
			t.Fatalf("claimed %q", got)
		}
		kept := make(map[string]queue.Enqueued)
		slow.before = func() {
			for _, key := range []string{"waits", "claimed"} {
				kept[key] = put(q, key, 0)
			}
			if got := values(claimN(t, q, 1)); got != "waits " {
				t.Errorf("claimed %q", got)
			}
		}
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			for key, was := range kept {
				if got := put(open(t, other.Queues, "mail"), key, 0); !got.Repeated || got.ID != was.ID {
					t.Errorf("%s: %q is enqueued again, as %+v", when, key, got)
				}
			}
		}
		time.Sleep(100 * time.Millisecond) // fake time
		check("at once")
		time.Sleep(10 * time.Second)
		check("when the purge's keys are gone")
		q = open(t, other.Queues, "mail")
		for _, key := range []string{"purged", "delayed"} {
			if got := put(q, key, 24*time.Hour); got.Repeated {
				t.Errorf("the key %q of a purged message is not free", key)
			}
		}
		time.Sleep(time.Minute)
		got := claimN(t, q, 10)
		if len(got) != 2 {
			t.Fatalf("claimed %q", values(got))
		}
		nack(t, q, queue.Nack{SetDelay: true, Delay: 5 * time.Minute}, got[0])
		check("while it is in the wheel")
		ack(t, q, got[1])
		if again := put(q, string(got[1].Value), 24*time.Hour); again.Repeated {
			t.Errorf("the key of an acknowledged message is not free")
		}
		delete(kept, string(got[1].Value))
		time.Sleep(6 * time.Minute)
		check("when it is back")
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		q = open(t, other.Queues, "mail")
		for key := range kept {
			if got := put(q, key, 0); got.Repeated {
				t.Errorf("the key %q is not free after another purge", key)
			}
		}
	})
}
