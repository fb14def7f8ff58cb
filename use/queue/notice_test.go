package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

func TestAProcessThatOnlyEnqueuesHearsThatItsQueueWasDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		send := func(v string) error {
			return b.With(t.Context(), "mail", func(q *queue.Queue) error {
				_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(v)})
				return err
			})
		}
		if err := send("1"); err != nil {
			t.Fatal(err)
		}
		if err := a.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := send("2"); err == nil {
			t.Errorf("an hour after the queue was deleted another process enqueues to it")
		}
		q := create(t, a.Queues, queue.Spec{Name: "mail", Topic: "mail2", Partitions: 1})
		time.Sleep(time.Hour)
		if err := send("3"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := values(claimN(t, q, 10)); got != "3 " {
			t.Errorf("the queue that has the name has %q; want 3", got)
		}
	})
}

func TestAProcessThatOnlyEnqueuesHearsOfSettings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		send := func(m queue.NewMessage) error {
			return b.With(t.Context(), "mail", func(q *queue.Queue) error {
				_, err := q.Enqueue(t.Context(), m)
				return err
			})
		}
		if err := send(queue.NewMessage{}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique, s.Priorities = true, 3; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if err := send(queue.NewMessage{Unique: "x"}); err != nil {
			t.Error(err)
		}
		if err := send(queue.NewMessage{Priority: 2}); err != nil {
			t.Error(err)
		}
	})
}

func TestAUniqueKeyIsFreeAfterAPurgeByAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Unique: true}})
		send := func(v string) queue.Enqueued {
			var at []queue.Enqueued
			err := b.With(t.Context(), "mail", func(q *queue.Queue) (err error) {
				at, err = q.Enqueue(t.Context(), queue.NewMessage{Value: []byte(v), Unique: "order-17"})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return at[0]
		}
		first := send("before the purge")
		c := begin(t, store, time.Second) // a process that purges, and is gone before it forgets
		synctest.Wait()
		if err := purgeAndDie(t.Context(), t, store); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		second := send("after the purge")
		if second.Repeated {
			t.Errorf("after the purge: a message with the unique key of a purged one is called a repetition of %v (the purged one is %v)", second.ID, first.ID)
		}
		time.Sleep(2 * time.Second)
		if got := values(claimN(t, open(t, c.Queues, "mail"), 10)); got != "after the purge " {
			t.Errorf("the queue has %q", got)
		}
	})
}

func TestIdleWorkersHearOfNewPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		claimVia(t, b, time.Minute)
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Priorities = 3; return nil }); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := open(t, a.Queues, "mail").Enqueue(t.Context(), queue.NewMessage{Value: []byte("urgent"), Priority: 2}); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		got := ""
		for range 24 {
			got += values(claimVia(t, b, 5*time.Minute))
			if got != "" {
				break
			}
		}
		if got == "" {
			t.Errorf("in %v the other process's worker got %q", time.Since(began), got)
		}
	})
}

func TestIdleWorkersHearOfAQueueMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		claimVia(t, b, time.Minute)
		if err := a.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q := create(t, a.Queues, queue.Spec{Name: "mail", Topic: "mail2", Partitions: 1})
		enqueue(t, q, "x")
		began := time.Now()
		got := ""
		for range 24 {
			got += values(claimVia(t, b, 5*time.Minute))
		}
		if got == "" {
			t.Errorf("in %v the other process's worker got %q", time.Since(began), got)
		}
	})
}

func TestKeepDoneCountsFromTheNextAck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "x")
		got := claimVia(t, b, time.Minute)
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.KeepDone = true; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		err := b.With(t.Context(), "mail", func(q *queue.Queue) error { _, err := q.Ack(t.Context(), got[0].Receipt); return err })
		if err != nil {
			t.Fatal(err)
		}
		topic, err := a.log.Topic(t.Context(), "mail.done")
		if err != nil {
			t.Fatal(err)
		}
		at, err := a.log.Bounds(t.Context(), topic.Partitions[0])
		if err != nil || at[0].Bounds.Next != 1 {
			t.Errorf("the message acknowledged after keep_done was set is not in mail.done: %+v %v", at, err)
		}
	})
}

// A process that has not heard of a purge, or of a deletion, answers as one that has.
func TestAReceiptFromBeforeAPurgeElsewhereIsStale(t *testing.T) {
	for name, answer := range map[string]func(context.Context, *queue.Queue, string) ([]error, error){
		"ack": func(ctx context.Context, q *queue.Queue, receipt string) ([]error, error) { return q.Ack(ctx, receipt) },
		"nack": func(ctx context.Context, q *queue.Queue, receipt string) ([]error, error) {
			return q.Nack(ctx, queue.Nack{Error: "no"}, receipt)
		},
		"extend": func(ctx context.Context, q *queue.Queue, receipt string) ([]error, error) {
			return q.Extend(ctx, time.Minute, receipt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				a, b := begin(t, store, time.Hour), begin(t, store, time.Hour)
				synctest.Wait()
				for _, mail := range []string{"purged", "deleted"} {
					create(t, a.Queues, queue.Spec{Name: mail, Partitions: 1})
					q := open(t, b.Queues, mail)
					enqueue(t, q, "m")
					m := claimN(t, q, 1)[0]
					end, want := a.Purge, queue.ErrStaleReceipt
					if mail == "deleted" {
						end, want = a.Delete, queue.ErrUnknownQueue
					}
					if err := end(t.Context(), mail); err != nil {
						t.Fatal(err)
					}
					var errs []error
					err := b.With(t.Context(), mail, func(q *queue.Queue) (err error) {
						errs, err = answer(t.Context(), q, m.Receipt)
						return err
					})
					if err == nil {
						err = one(t, errs, nil)
					}
					if !errors.Is(err, want) {
						t.Errorf("after the queue was %s: %v, want %v", mail, err, want)
					}
				}
			})
		})
	}
}

func TestDeadLettersStayDiscardedAfterAPurgeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := begin(t, store, time.Second), begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Attempts: 1}})
		enqueue(t, q, "x")
		for _, m := range claimVia(t, b, time.Minute) {
			_ = b.With(t.Context(), "mail", func(q *queue.Queue) error {
				_, err := q.Nack(t.Context(), queue.Nack{Reject: true}, m.Receipt)
				return err
			})
		}
		n := func(p process) (n int) {
			_ = p.With(t.Context(), "mail", func(q *queue.Queue) error {
				l, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
				n = len(l)
				return err
			})
			return n
		}
		before := n(b)
		if _, err := q.Sweep(t.Context(), queue.Sweep{Discard: true}); err != nil {
			t.Fatal(err)
		}
		discarded := n(b)
		if err := a.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		purged := n(b) // before b hears of it
		time.Sleep(time.Hour)
		if before != 1 || discarded != 0 || purged != 0 || n(b) != 0 {
			t.Errorf("letters: %d, %d after they were discarded, %d right after a purge elsewhere, %d later", before, discarded, purged, n(b))
		}
	})
}

func TestAQueueMadeAnewBeginsBehindTheDeadLettersThatAreThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Attempts: 1}})
		enqueue(t, q, "x")
		m := claimN(t, q, 1)[0]
		if _, err := q.Nack(t.Context(), queue.Nack{Reject: true}, m.Receipt); err != nil {
			t.Fatal(err)
		}
		if n, err := q.RedriveAll(t.Context(), 0); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		m = claimN(t, q, 1)[0]
		if _, err := q.Ack(t.Context(), m.Receipt); err != nil {
			t.Fatal(err)
		}
		if err := a.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if err := a.log.DeleteTopic(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		q = create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if s, err := q.Stats(t.Context()); err != nil || s.Dead != 0 {
			t.Errorf("the new queue has %+v, %v", s, err)
		}
		if n, err := q.RedriveAll(t.Context(), 0); n != 0 || err != nil {
			t.Errorf("%d letters that were redriven before are redriven again, %v", n, err)
		}
	})
}

func TestAScheduleGoesOnAfterItsQueueWasAlteredElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		b := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, b.Queues, queue.Spec{Name: "mail", Partitions: 1})
		setSchedule(t, q, queue.Schedule{Name: "old", Cron: "@yearly"})
		enqueue(t, q, "x")
		a := begin(t, store, time.Second)
		synctest.Wait()
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Unique = true; return nil }); err != nil {
			t.Fatal(err)
		}
		setSchedule(t, open(t, a.Queues, "mail"), queue.Schedule{Name: "digest", Cron: everyMinute, Message: queue.NewMessage{Unique: "digest"}})
		a.stop()
		time.Sleep(3 * time.Hour)
		topic, err := b.log.Topic(t.Context(), "mail")
		if err != nil {
			t.Fatal(err)
		}
		if at, err := b.log.Bounds(t.Context(), topic.Partitions[0]); err != nil || at[0].Bounds.Next < 2 {
			t.Errorf("in three hours the process that goes on enqueued %d messages of the schedule (%v)", at[0].Bounds.Next-1, err)
		}
	})
}

func claimVia(t *testing.T, p process, wait time.Duration) (got []queue.Message) {
	t.Helper()
	err := p.With(t.Context(), "mail", func(q *queue.Queue) (err error) {
		got, err = q.Claim(t.Context(), queue.Claim{Max: 10, Worker: "w", Wait: wait})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// failing refuses to delete keys of messages' unique keys: its process dies before it forgets.
type failing struct{ eventlog.Store }

func (s *failing) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, p := range e.Puts {
			if p.Value == nil && !strings.HasPrefix(p.Key, "queue/dead/") {
				return nil, eventlog.ErrUnavailable
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

func purgeAndDie(ctx context.Context, t *testing.T, store eventlog.Store) error {
	p := begin(t, &failing{store}, time.Second)
	synctest.Wait()
	err := p.Purge(ctx, "mail")
	p.stop()
	return err
}

// A read of the definition comes back after the change, the notice and another read.
func TestADefinitionThatWasReadBeforeANewerOneIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		slow := &between{Store: mem}
		a, b := begin(t, mem, time.Second), begin(t, slow, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		q := open(t, b.Queues, "mail")
		slow.after("queue/def/mail", func() { // while b's first read is on its way back
			if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Priorities = 3; return nil }); err != nil {
				t.Error(err)
			}
			time.Sleep(5 * time.Second)                                        // b hears of it,
			if err := b.With(t.Context(), "mail", func(q *queue.Queue) error { // and reads it again
				_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("0")})
				return err
			}); err != nil {
				t.Error(err)
			}
			if n := q.Info().Settings.Priorities; n != 3 {
				t.Errorf("priorities after the second read: %d", n)
			}
		})
		_, _ = q.Now(t.Context()) // GET /v1/queues/mail, the slow one
		time.Sleep(time.Hour)
		if n := open(t, b.Queues, "mail").Info().Settings.Priorities; n != 3 {
			t.Errorf("an hour later the process knows %d priorities; want 3", n)
		}
		if err := b.With(t.Context(), "mail", func(q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("2")})
			return err
		}); err != nil {
			t.Error(err)
		}
	})
}

// Open reads, then the queue is deleted and the notice comes, then Open goes on.
func TestAQueueThatIsDeletedWhileItIsOpenedIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		slow := &between{Store: mem}
		a, b := begin(t, mem, time.Second), begin(t, slow, time.Second)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "other", Partitions: 1})
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		open(t, b.Queues, "other")
		synctest.Wait()
		time.Sleep(time.Minute)
		slow.after("queue/def/mail", func() {
			if err := a.Delete(t.Context(), "mail"); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
		})
		_, _ = b.Open(t.Context(), "mail")
		time.Sleep(time.Hour)
		err := b.With(t.Context(), "mail", func(q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("2")})
			return err
		})
		if !errors.Is(err, queue.ErrUnknownQueue) {
			t.Errorf("an hour after the queue was deleted: %v", err)
		}
	})
}

func TestAWaitingClaimHearsOfANewPriorityAlsoFromASlowStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newStore(t)
		slow := &between{Store: mem}
		a, b := begin(t, mem, 100*time.Millisecond), begin(t, slow, 100*time.Millisecond)
		synctest.Wait()
		create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1})
		got := make(chan time.Time, 1)
		go func() {
			_ = b.With(t.Context(), "mail", func(q *queue.Queue) error {
				ms, err := q.Claim(t.Context(), queue.Claim{Wait: 5 * time.Minute})
				if err != nil || len(ms) == 0 {
					t.Errorf("claim: %v, %v", ms, err)
				}
				got <- time.Now()
				return err
			})
		}()
		time.Sleep(10 * time.Second)
		slow.after("queue/def/mail", func() { time.Sleep(50 * time.Millisecond) }) // the store answers slowly, once
		if _, err := a.Alter(t.Context(), "mail", func(s *queue.Settings) error { s.Priorities = 3; return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		began := time.Now()
		if err := a.With(t.Context(), "mail", func(q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("2"), Priority: 2})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if d := (<-got).Sub(began); d > 2*time.Second {
			t.Errorf("a waiting worker gets the message after %v", d)
		}
	})
}
