package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

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
