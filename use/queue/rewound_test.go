package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// A store lost its end, as a standby that lagged does. A message whose acknowledgement is lost
// comes again, and not only once somebody enqueues another.
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

// A delayed message is due, and its move waits for the store, which loses it. The next message at
// its offset is not taken for moved.
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

// loseOnce has the store lose its end, and the log notice, when a prefix is listed next.
func loseOnce(store *ahead, prefix string, restore func(bool)) {
	lose := sync.OnceFunc(func() {
		restore(false)
		time.Sleep(5 * time.Second)
	})
	listed := func(list string) {
		if strings.HasPrefix(list, prefix) {
			lose()
		}
	}
	store.ofList.Store(&listed)
}

// The store loses its end while a queue is purged. What is enqueued then, below the lost end, was
// not purged.
func TestAPurgeDoesNotReachPastTheEndOfAStoreThatLostIt(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		store := &ahead{Store: under}
		p := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a")
		restore := under.Backup()
		enqueue(t, q, "b", "c", "d")
		loseOnce(store, "queue/dead/", restore) // after it has read the ends
		if err := p.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		enqueue(t, open(t, p.Queues, "mail"), "e", "f")
		time.Sleep(5 * time.Second)
		if got := values(claimN(t, open(t, p.Queues, "mail"), 10)); got != "e f " {
			t.Errorf("claimed %q, want e and f, which were enqueued after the purge", got)
		}
	})
}

// The store loses dead letters of an earlier queue while another of its name is created. Those that
// come then are of the new one.
func TestANewQueueDoesNotPassDeadLettersPastTheEndOfAStoreThatLostIt(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		store := &ahead{Store: under}
		p := begin(t, store, time.Second)
		synctest.Wait()
		for _, name := range []string{"mail", "mail.dlt"} {
			if _, err := p.log.CreateTopic(t.Context(), eventlog.TopicSpec{Name: name, Partitions: 1}); err != nil {
				t.Fatal(err)
			}
		}
		topic, err := p.log.Topic(t.Context(), "mail.dlt")
		if err != nil {
			t.Fatal(err)
		}
		restore := under.Backup()
		if _, err := p.log.Publish(t.Context(), topic.Partitions[0], eventRecord("lost"), eventRecord("lost, too")); err != nil {
			t.Fatal(err)
		}
		loseOnce(store, "topic/__weir_queues", restore) // after it has read the ends, when it makes the topic of notices
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "new")
		errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, claimN(t, q, 1)[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(letters) != 1 || string(letters[0].Value) != "new" {
			t.Errorf("dead letters %+v, %v, want the new one", letters, err)
		}
	})
}

// A restart of the store refuses the entry that creates a queue, though nobody else creates one.
func TestAQueueIsCreatedWhileTheStoreRestarts(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		under := memory.New()
		store := &ahead{Store: under}
		p := begin(t, store, time.Second)
		synctest.Wait()
		spec := queue.Spec{Name: "mail", Partitions: 1}
		create(t, p.Queues, spec) // makes the topics
		if err := p.Delete(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		release := store.holdCommits()
		created := make(chan error, 1)
		go func() {
			_, err := p.Create(t.Context(), spec)
			created <- err
		}()
		synctest.Wait()
		under.Backup()(false)
		release()
		if err := <-created; err != nil {
			t.Errorf("create: %v", err)
		}
		if _, err := p.Open(t.Context(), "mail"); err != nil {
			t.Errorf("open: %v", err)
		}
		if _, err := p.Create(t.Context(), spec); !errors.Is(err, queue.ErrQueueExists) {
			t.Errorf("create again: %v, want ErrQueueExists", err)
		}
	})
}
