package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A key knows where the wheel delivered its message. So the next message with the key finds out that this one is over, also where nobody freed the key.
func TestTheUniqueKeyOfADelayedMessageIsFreeOnceTheMessageIsOver(t *testing.T) {
	for name, over := range map[string]func(*testing.T, process, *queue.Queue){
		"retention deletes it before it is claimed": func(t *testing.T, p process, q *queue.Queue) { trimAll(t, p, "mail") },
		"it is acknowledged while the queue has no unique keys": func(t *testing.T, p process, q *queue.Queue) {
			setUnique(t, p, false)
			ackAll(t, p)
			setUnique(t, p, true)
		},
		"it is delayed for a retry, and retention deletes it": func(t *testing.T, p process, q *queue.Queue) {
			for _, m := range claimN(t, q, 10) {
				errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: 2 * time.Hour}, m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			}
			if !putDelayed(t, q, "b").Repeated {
				t.Fatal("the key of a message that is delayed for a retry is free")
			}
			time.Sleep(2*time.Hour + 10*time.Second)
			trimAll(t, p, "mail")
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := begin(t, newStore(t), 20*time.Second)
				synctest.Wait()
				create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
				q := open(t, p.Queues, "mail")
				keys := []string{"a", "b", "c"} // due at the same time: the wheel delivers them in one batch
				for _, k := range keys {
					putDelayed(t, q, k)
				}
				time.Sleep(time.Hour + 10*time.Second)
				for _, k := range keys {
					if !putDelayed(t, q, k).Repeated {
						t.Fatalf("the key %s of a message that waits in the queue is free", k)
					}
				}
				over(t, p, q)
				q = open(t, p.Queues, "mail")
				for _, k := range keys {
					if putDelayed(t, q, k).Repeated {
						t.Errorf("the key %s of a message that is over is taken", k)
					}
				}
			})
		})
	}
}

func TestTheWheelTellsEachUniqueKeyWhereItsOwnMessageIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		keys := []string{"a", "b", "c"}
		for _, k := range keys {
			putDelayed(t, open(t, p.Queues, "mail"), k)
		}
		time.Sleep(time.Hour + 10*time.Second)
		setUnique(t, p, false)
		q, done := open(t, p.Queues, "mail"), ""
		for _, m := range claimN(t, q, 10) {
			if done = string(m.Value); done == "b" {
				errs, err := q.Ack(t.Context(), m.Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			}
		}
		setUnique(t, p, true)
		for _, k := range keys {
			if again := putDelayed(t, open(t, p.Queues, "mail"), k); again.Repeated != (k != "b") {
				t.Errorf("b alone is done, and the key %s is %+v", k, again)
			}
		}
	})
}

func putDelayed(t *testing.T, q *queue.Queue, unique string) queue.Enqueued {
	t.Helper()
	out, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(unique), Unique: unique, Delay: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return out[0]
}

func trimAll(t *testing.T, p process, topic string) {
	t.Helper()
	to, err := p.log.Topic(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range to.Partitions {
		b, err := p.log.Bounds(t.Context(), part)
		if err != nil || b[0].Bounds.Next == 0 {
			t.Fatal(b, err)
		}
		if err := p.log.Trim(t.Context(), part, b[0].Bounds.Next); err != nil {
			t.Fatal(err)
		}
	}
}

func setUnique(t *testing.T, p process, unique bool) {
	t.Helper()
	if _, err := p.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique = unique; return nil }); err != nil {
		t.Fatal(err)
	}
}

func ackAll(t *testing.T, p process) {
	t.Helper()
	q := open(t, p.Queues, "mail")
	for _, m := range claimN(t, q, 10) {
		errs, err := q.Ack(t.Context(), m.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
	}
}
