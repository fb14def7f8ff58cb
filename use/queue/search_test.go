package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// A message that came back is found however many are behind it, and if the search ends before it,
// nobody is told that it is done.
func TestAMessageThatWaitsIsNeverToldAsDone(t *testing.T) {
	once(t)
	synctest.Test(t, func(t *testing.T) {
		const behind = 101_000
		qs := start(t, newStore(t))
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: true}})
		enqueue(t, q, "acknowledged", "comes back")
		ms := claimN(t, q, 2)
		if one(t, must(q.Ack(t.Context(), ms[0].Receipt)), nil) != nil {
			t.Fatal("not acknowledged")
		}
		if one(t, must(q.Nack(t.Context(), queue.Nack{SetDelay: true, Delay: 2 * time.Hour}, ms[1].Receipt)), nil) != nil {
			t.Fatal("not given back")
		}
		many := func(n int, m queue.NewMessage) {
			t.Helper()
			for range n / 1000 {
				all := make([]queue.NewMessage, 1000)
				for i := range all {
					all[i] = m
				}
				if _, err := q.Enqueue(t.Context(), all...); err != nil {
					t.Fatal(err)
				}
			}
		}
		many(1000, queue.NewMessage{})
		time.Sleep(3 * time.Hour)
		many(behind, queue.NewMessage{})
		find := func(id queue.MessageID, want string) {
			t.Helper()
			if c, err := q.Find(t.Context(), id); err != nil || c.State != want {
				t.Errorf("%v is %q, want %q: %v", id, c.State, want, err)
			}
		}
		find(ms[0].ID, queue.Done)
		find(ms[1].ID, queue.Ready)
		queue.SearchLess(qs, 0)
		find(ms[0].ID, queue.Done) // there is a copy of it
		find(ms[1].ID, queue.Unclear)
		find(queue.MessageID{Partition: ms[1].ID.Partition, Offset: 2 * behind}, queue.Unknown)
	})
}

// A process that has not heard of it finds what another one put off, made a dead letter or moved
// out of the wheel.
func TestWhatAnotherProcessMovedIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		due, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("due"), Delay: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		enqueue(t, q, "put off", "rejected")
		ms := claimN(t, q, 2)
		asked := make([]*queue.Queue, 4) // each hears of what it is asked for, and of the rest
		for i := range asked {
			asked[i] = open(t, asking(t, store), "mail")
		}
		nack(t, q, queue.Nack{SetDelay: true, Delay: 2 * time.Hour}, ms[0])
		nack(t, q, queue.Nack{Reject: true}, ms[1])
		time.Sleep(10 * time.Second) // of fake time
		for i, want := range []queue.Condition{{ID: ms[0].ID, State: queue.Delayed}, {ID: ms[1].ID, State: queue.Dead}, {ID: due[0].ID, State: queue.Ready}} {
			if got := find(t, asked[i], want.ID); got.State != want.State {
				t.Errorf("what is %s is %s to a process that has not heard of it", want.State, got.State)
			}
		}
		letters, err := asked[3].Letters(t.Context(), deadLetters(t, q)[0].Letter)
		if err != nil || len(letters) != 1 {
			t.Errorf("%d letters are found by the id of one: %v", len(letters), err)
		}
	})
}

// beforeGet is a store that lets something happen once, ahead of a read of keys that begin with a
// prefix.
type beforeGet struct {
	eventlog.Store
	prefix string
	then   atomic.Pointer[func()]
}

func (s *beforeGet) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	if len(keys) > 0 && strings.HasPrefix(keys[0], s.prefix) {
		if then := s.then.Swap(nil); then != nil {
			(*then)()
		}
	}
	return s.Store.Get(ctx, keys, maxBytes)
}

// The wheel is searched before the queue's partitions.
func TestAMessageThatIsPutOffWhileItIsSearchedForIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		under := newStore(t)
		p := begin(t, under, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		id, err := q.Enqueue(t.Context(), queue.NewMessage{Value: []byte("v"), Delay: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // of fake time
		m := claimN(t, q, 1)[0]
		store := &beforeGet{Store: under, prefix: "queue/state/"}
		asked := open(t, asking(t, store), "mail")
		putOff := func() { nack(t, q, queue.Nack{SetDelay: true, Delay: 2 * time.Hour}, m) }
		store.then.Store(&putOff)
		if c := find(t, asked, id[0].ID); c.State != queue.Delayed {
			t.Errorf("a message that was put off meanwhile is %s", c.State)
		}
		if store.then.Load() != nil {
			t.Error("it was not put off while it was searched for")
		}
	})
}

// The age of the oldest messages of many partitions is read together, and once.
func TestTheOldestMessagesAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 1500
		store := &far{Store: newStore(t)}
		qs := start(t, store)
		q := create(t, qs, queue.Spec{Name: "mail", Partitions: partitions})
		var ms []queue.NewMessage
		for i := range 4 * partitions {
			ms = append(ms, queue.NewMessage{Key: []byte(fmt.Sprint(i))})
		}
		if _, err := q.Enqueue(t.Context(), ms...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		qs = start(t, store)
		q = open(t, qs, "mail")
		ask := func(what string, most int64, do func() (time.Duration, error)) {
			t.Helper()
			time.Sleep(10 * time.Second)
			before := store.reads.Load()
			oldest, err := do()
			if err != nil || oldest < time.Minute {
				t.Errorf("%s: %v, %v", what, oldest, err)
			}
			if n := store.reads.Load() - before; n > most {
				t.Errorf("%s: %d reads", what, n)
			}
		}
		stats := func() (time.Duration, error) { s, err := q.Stats(t.Context()); return s.Oldest, err }
		counts := func() (time.Duration, error) {
			all, _, err := qs.Counts(t.Context())
			return all[0].Oldest, err
		}
		ask("counts at first", 10, counts)
		ask("stats again", 4, stats) // bounds, and nothing else
		ask("counts again", 0, counts)
		for _, m := range claimN(t, q, 10) {
			if one(t, must(q.Ack(t.Context(), m.Receipt)), nil) != nil {
				t.Fatal("not acknowledged")
			}
		}
		ask("after some were handled", 5, stats)
	})
}
