package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// An operator deletes the topic of one priority. What is in it is gone; all else goes on, and
// nothing else is lost.
func TestAQueueGoesOnWithoutTheTopicOfOnePriority(t *testing.T) {
	for name, deleted := range map[string]int{"mail": 0, "mail.p1": 1, "mail.p2": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				p := begin(t, store, time.Second)
				other := begin(t, store, time.Second)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Priorities: 3, Unique: true, Lease: time.Minute}})
				put := func(m queue.NewMessage) (queue.Enqueued, error) {
					out, err := q.Enqueue(t.Context(), m)
					if err != nil {
						return queue.Enqueued{}, err
					}
					return out[0], nil
				}
				must := func(m queue.NewMessage) queue.Enqueued {
					t.Helper()
					out, err := put(m)
					if err != nil {
						t.Fatal(err)
					}
					return out
				}
				live := func(priority int) int { // another level
					if priority == deleted {
						return (priority + 1) % 3
					}
					return priority
				}
				must(queue.NewMessage{Value: []byte("dead"), Priority: deleted})
				nack(t, q, queue.Nack{Reject: true}, claimN(t, q, 1)[0])
				must(queue.NewMessage{Value: []byte("claimed"), Priority: deleted})
				if got, err := q.Claim(t.Context(), queue.Claim{ID: "c", Worker: "w"}); err != nil || len(got) != 1 {
					t.Fatal(got, err)
				}
				must(queue.NewMessage{Value: []byte("gone"), Priority: deleted})
				must(queue.NewMessage{Value: []byte("unique"), Priority: deleted, Unique: "u"})
				for range 3 {
					must(queue.NewMessage{Value: []byte("later"), Priority: deleted, Delay: time.Minute})
				}
				must(queue.NewMessage{Value: []byte("later"), Priority: live(0), Delay: time.Minute, Unique: "v"})
				if err := other.log.DeleteTopic(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)

				if _, err := put(queue.NewMessage{Priority: deleted}); !errors.Is(err, eventlog.ErrUnknownTopic) {
					t.Errorf("enqueue to the topic that was deleted: %v", err)
				}
				must(queue.NewMessage{Value: []byte("plain"), Priority: live(1)})
				if must(queue.NewMessage{Value: []byte("new"), Priority: live(0), Unique: "u"}).Repeated {
					t.Error("the unique key of a message whose topic was deleted is taken")
				}
				if !must(queue.NewMessage{Priority: live(0), Unique: "v"}).Repeated {
					t.Error("the unique key of a delayed message is free")
				}
				if _, err := q.Claim(t.Context(), queue.Claim{ID: "c", Worker: "w", Max: 10}); err != nil {
					t.Errorf("a claim is repeated: %v", err)
				}
				time.Sleep(2 * time.Minute)
				if n, err := q.RedriveAll(t.Context(), 0); n != 1 || err != nil {
					t.Errorf("%d redriven (%v)", n, err)
				}
				if s, err := q.Stats(t.Context()); err != nil || s.Ready != 7 {
					t.Errorf("there are %+v (%v), want 7 ready", s, err)
				}
				got := make(map[string]int)
				for range 10 {
					ms := claimN(t, q, 10)
					for _, m := range ms {
						got[string(m.Value)]++
					}
					ack(t, q, ms...)
				}
				if got["later"] != 4 || got["plain"] != 1 || got["new"] != 1 || got["dead"] != 1 || len(got) != 4 {
					t.Errorf("claimed %v", got)
				}
				for _, concurrency := range []int{5, 0} {
					if _, err := p.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Concurrency = concurrency; return nil }); err != nil {
						t.Errorf("limit the queue to %d: %v", concurrency, err)
					}
				}
				must(queue.NewMessage{Value: []byte("purged"), Priority: live(2)})
				if err := p.Purge(t.Context(), "mail"); err != nil {
					t.Error(err)
				}
				if got := values(claimN(t, open(t, p.Queues, "mail"), 10)); got != "" {
					t.Errorf("after a purge there is %s", got)
				}
			})
		})
	}
}
