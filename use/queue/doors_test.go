package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/publish"
	"github.com/weir-log/weir/use/queue"
)

func TestADelayedMessageIsNotLostBecauseAnotherProcessPurgedTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		a, b := start(t, store), start(t, store)
		create(t, a, queue.Spec{Name: "mail", Partitions: 1})
		old := open(t, b, "mail") // and b turns the wheel with it
		if _, err := old.Enqueue(t.Context(), queue.NewMessage{Value: []byte("purged"), Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if err := a.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if _, err := old.Enqueue(t.Context(), queue.NewMessage{Value: []byte("late"), Delay: time.Minute}); !errors.Is(err, queue.ErrUnknownQueue) {
			t.Fatalf("enqueue with the id from before the purge: %v, want that the queue does not have it", err)
		}
		if err := b.With(t.Context(), "mail", func(q *queue.Queue) error {
			_, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("kept"), Delay: time.Minute})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		q := open(t, a, "mail")
		time.Sleep(2 * time.Minute)
		if got := values(claimN(t, q, 10)); got != "kept " {
			t.Errorf("after the delay there is %q, want kept alone", got)
		}
	})
}

func TestTheWheelDoesNotDropWhatAnotherProcessEnqueuedAfterAPurge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		turner := start(t, store)
		create(t, turner, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := open(t, turner, "mail").Enqueue(t.Context(), queue.NewMessage{Value: []byte("first"), Delay: time.Second}); err != nil {
			t.Fatal(err)
		}
		if _, err := create(t, turner, queue.Spec{Name: "bills"}).Enqueue(t.Context(), queue.NewMessage{Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // it turns the wheel, and knows the queue by its first id
		other := idle(t, store)
		if err := other.Purge(t.Context(), "mail"); err != nil {
			t.Fatal(err)
		}
		if _, err := open(t, other, "mail").Enqueue(t.Context(), queue.NewMessage{Value: []byte("second"), Delay: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		q := open(t, start(t, store), "mail")
		if got := values(claimN(t, q, 10)); got != "second " {
			t.Errorf("there is %q, want second", got)
		}
	})
}

// idle are the queues of a process that enqueues, and neither works nor turns the wheel.
func idle(t *testing.T, store eventlog.Store) *queue.Queues {
	t.Helper()
	log, err := eventlog.Open(t.Context(), store, eventlog.Config{Poll: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = log.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synctest.Wait()
	return queue.New(log, publish.New(log, publish.Config{}), queue.Config{})
}

func TestAForgedReceiptOfAnotherPartitionIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		other := create(t, qs, queue.Spec{Name: "bills", Partitions: 1})
		enqueue(t, q, "a")
		enqueue(t, other, "b")
		mine, theirs := claimN(t, q, 1)[0], claimN(t, other, 1)[0]
		of := func(m queue.Message) []string { return strings.Split(m.Receipt, ".") }
		forged := of(theirs)
		forged[0] = of(mine)[0]
		for _, partition := range []string{of(theirs)[1], "0", "123456789", "-1"} {
			forged[1] = partition
			errs, err := q.Ack(t.Context(), strings.Join(forged, "."))
			if err := one(t, errs, err); !errors.Is(err, queue.ErrBadReceipt) {
				t.Errorf("partition %s: %v, want a bad receipt", partition, err)
			}
		}
		for name, answer := range map[string]func(string) ([]error, error){
			"ack":    func(r string) ([]error, error) { return q.Ack(t.Context(), r) },
			"nack":   func(r string) ([]error, error) { return q.Nack(t.Context(), queue.Nack{Reject: true}, r) },
			"extend": func(r string) ([]error, error) { return q.Extend(t.Context(), time.Hour, r) },
		} {
			errs, err := answer(theirs.Receipt)
			if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) || !strings.Contains(err.Error(), "of another queue") {
				t.Errorf("%s with the receipt of another queue: %v", name, err)
			}
		}
		errs, err := other.Ack(t.Context(), theirs.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("the message that somebody forged a receipt for: %v", err)
		}
	})
}

func TestAClaimTakesWhatThereIsRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		for i := range 10 {
			enqueue(t, q, fmt.Sprint(i)+strings.Repeat("x", 1000))
		}
		open, asked := 0, 0
		room := func(context.Context) (int64, func(), error) {
			open, asked = open+1, asked+1
			return 3000, func() { open-- }, nil
		}
		for want := 0; want < 10; want += 2 {
			got, err := q.Claim(t.Context(), queue.Claim{Max: 10, Room: room})
			if err != nil || len(got) != 2 || got[0].Value[0] != byte('0'+want) || got[0].Attempt != 1 {
				t.Fatalf("from message %d on: %d messages, %v; want 2, first attempts", want, len(got), err)
			}
			synctest.Wait() // what was too much is given back
		}
		if got, err := q.Claim(t.Context(), queue.Claim{Wait: 10 * time.Second, Room: room}); err != nil || len(got) != 0 {
			t.Fatalf("an empty queue gave %d messages, %v", len(got), err)
		}
		if open != 5 || asked > 6 {
			t.Errorf("%d rooms are held after 5 answers, and %d were asked for", open, asked)
		}
	})
}

// However exactly messages take the memory that a claim has, it asks for memory once.
func TestAClaimAsksForMemoryOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spec := queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Priorities: 2}}
		q := create(t, start(t, newStore(t)), spec)
		value := []byte(strings.Repeat("x", 1000))
		low, high := queue.NewMessage{Value: value}, queue.NewMessage{Value: value, Priority: 1}
		if _, err := q.Enqueue(t.Context(), low, high); err != nil {
			t.Fatal(err)
		}
		const overhead = 600 // of a message in memory, at most
		for bytes := len(value); bytes < len(value)+overhead; bytes++ {
			held, asked := 0, 0
			got, err := q.Claim(t.Context(), queue.Claim{Max: 2, Room: func(context.Context) (int64, func(), error) {
				held, asked = held+1, asked+1
				return int64(bytes), func() { held-- }, nil
			}})
			if err != nil || len(got) != 1 || held != 1 || asked != 1 {
				t.Fatalf("memory for %d bytes: %d messages, %v; asked %d times, keeps %d", bytes, len(got), err, asked, held)
			}
			q.GiveBack(got)
			synctest.Wait()
		}
	})
}

func TestAClaimThatWaitsIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		stop := make(chan struct{})
		time.AfterFunc(time.Second, func() { close(stop) })
		began := time.Now()
		if got, err := q.Claim(t.Context(), queue.Claim{Wait: time.Minute, Stop: stop}); err != nil || len(got) != 0 || time.Since(began) != time.Second {
			t.Errorf("%d messages, %v after %v", len(got), err, time.Since(began))
		}
	})
}

func TestARedriveOfAllGoesByPositionAtARateAndInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1})
		reject := func(n int) {
			for range n {
				ms := claimN(t, q, 1)
				errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, ms[0].Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
			}
		}
		for i := range 30 {
			enqueue(t, q, fmt.Sprint(i))
		}
		reject(30)
		began := time.Now()
		swept, err := q.Sweep(t.Context(), queue.Sweep{PerSecond: 10, For: time.Second})
		if err != nil || swept.Taken != 10 || swept.Until == (queue.MessageID{}) || time.Since(began) != time.Second {
			t.Fatalf("in a second at 10 a second: %+v, %v after %v", swept, err, time.Since(began))
		}
		reject(5) // those that fail again are left for the next time
		swept, err = q.Sweep(t.Context(), queue.Sweep{Until: swept.Until})
		if err != nil || swept.Taken != 20 || swept.Until != (queue.MessageID{}) {
			t.Fatalf("the rest: %+v, %v", swept, err)
		}
		swept, err = q.Sweep(t.Context(), queue.Sweep{Discard: true})
		if s, _ := q.Stats(t.Context()); err != nil || swept.Taken != 5 || s.Dead != 0 || s.Ready != 25 {
			t.Fatalf("discarded %+v, %v; the queue has %+v", swept, err, s)
		}
	})
}

func TestAMessageOfAnotherQueueIsNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		qs := start(t, newStore(t))
		q, other := create(t, qs, queue.Spec{Name: "mail", Partitions: 1}), create(t, qs, queue.Spec{Name: "bills", Partitions: 1})
		ids, err := other.Enqueue(t.Context(), queue.NewMessage{Value: []byte("later"), Delay: time.Hour}, queue.NewMessage{Value: []byte("now")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, id := range ids {
			if c, err := q.Find(t.Context(), id.ID); err != nil || c.State != "unknown" {
				t.Errorf("message %v of another queue: %+v, %v", id.ID, c, err)
			}
		}
		if c, err := other.Find(t.Context(), ids[0].ID); err != nil || c.State != "delayed" {
			t.Errorf("its own: %+v, %v", c, err)
		}
	})
}
