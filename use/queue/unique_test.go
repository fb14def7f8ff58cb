package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// A key knows where the wheel delivered its message. So the next message with the key finds out
// that this one is over, also where nobody freed the key.
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

// A delayed message can be damaged in each slot that it passes, on its way there for the first time
// or for a retry. The wheel gives it up when it reads it, and then its key is free. Its slot is
// trimmed like any other.
func TestTheUniqueKeyOfADamagedDelayedMessageIsFreeOnceItIsGivenUp(t *testing.T) {
	for name, c := range map[string]struct {
		delay time.Duration
		retry bool
		hop   bool
	}{
		"where it was enqueued":      {delay: time.Minute},
		"in a slot of shorter spans": {delay: 20 * time.Minute, hop: true},
		"delayed for a retry":        {retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &flawed{Store: newStore(t), partition: -1}
				p := begin(t, store, 20*time.Second)
				synctest.Wait()
				q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
				enqueueA := func() queue.Enqueued {
					t.Helper()
					out, err := open(t, p.Queues, "mail").Enqueue(t.Context(), queue.NewMessage{Value: []byte("a"), Unique: "a", Delay: c.delay})
					if err != nil {
						t.Fatal(err)
					}
					return out[0]
				}
				enqueueA()
				if c.retry {
					c.delay = 2 * time.Minute
					errs, err := q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: c.delay}, claimN(t, q, 1)[0].Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
				}
				if c.hop {
					time.Sleep(c.delay - 10*time.Second)
				}
				at := inTheWheel(t, p)
				p.stop() // another process reads from the store
				store.damage(at.Partition, at.Offset)
				p = begin(t, store, 20*time.Second)
				synctest.Wait()
				time.Sleep(c.delay + 10*time.Second)
				if enqueueA().Repeated {
					t.Error("the key of a message that the wheel gave up is taken")
				}
				time.Sleep(2 * c.delay)
				if at := inTheWheel(t, p); at != (queue.MessageID{}) {
					t.Errorf("the slot with the damaged message was not trimmed: %v", at)
				}
				if got := values(claimN(t, open(t, p.Queues, "mail"), 10)); got != "a " {
					t.Errorf("claimed %q, want the second message", got)
				}
			})
		})
	}
}

// inTheWheel is where the wheel's first message is; zero: the wheel is empty.
func inTheWheel(t *testing.T, p process) queue.MessageID {
	t.Helper()
	topic, err := p.log.Topic(t.Context(), "__weir_later")
	if err != nil {
		t.Fatal(err)
	}
	held, err := p.log.Bounds(t.Context(), topic.Partitions...)
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range held {
		if h.Bounds.First < h.Bounds.Next {
			return queue.MessageID{Partition: topic.Partitions[i], Offset: h.Bounds.First}
		}
	}
	return queue.MessageID{}
}

// Another process made the wheel's topic just now.
func TestTheUniqueKeyOfADelayedMessageIsTakenForAProcessThatDoesNotKnowTheWheel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Minute), begin(t, store, time.Minute)
		synctest.Wait()
		qa := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		if _, err := open(t, b.Queues, "mail").Enqueue(t.Context(), queue.NewMessage{Value: []byte("zero"), Unique: "z"}); err != nil {
			t.Fatal(err)
		}
		if _, err := qa.Enqueue(t.Context(), queue.NewMessage{Value: []byte("first"), Unique: "u", Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		qb := open(t, b.Queues, "mail")
		for range 2 {
			out, err := qb.Enqueue(t.Context(), queue.NewMessage{Value: []byte("second"), Unique: "u"})
			if err != nil {
				t.Fatal(err)
			}
			if !out[0].Repeated {
				t.Errorf("a second message with the unique key of an unfinished one is enqueued: %+v", out)
			}
		}
		time.Sleep(2 * time.Hour)
		if got := values(claimN(t, qa, 10)); got != "zero first " && got != "first zero " {
			t.Errorf("delivered: %q", got)
		}
	})
}

func TestNoQueueTakesATopicOfWeirsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), time.Second)
		synctest.Wait()
		for _, spec := range []queue.Spec{{Name: "__weir_later"}, {Name: "x", Topic: "__weir_later"}, {Name: "x", Topic: "__weir_queues"}} {
			var invalid *eventlog.InvalidError
			if _, err := p.Create(t.Context(), spec); !errors.As(err, &invalid) {
				t.Errorf("create %+v: %v", spec, err)
			}
		}
		putDelayed(t, create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}}), "later")
	})
}
