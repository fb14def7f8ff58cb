package queue_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// A claim that passes over a long backlog of a key that is taken leaves it as it is, and makes
// nothing of its length.
func TestAClaimLeavesTheBacklogOfATakenKeyAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const backlog = 10_000
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeyOrder: true, Lease: time.Hour}})
		for n := range backlog / 1000 {
			var ms []queue.NewMessage
			for i := range 1000 {
				ms = append(ms, queue.NewMessage{Key: []byte("x"), Value: fmt.Append(nil, n, i)})
			}
			if _, err := q.Enqueue(t.Context(), ms...); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(claimN(t, q, 1000)); n != 1 {
			t.Fatalf("%d messages of one key were claimed", n)
		}
		for range backlog / 1000 { // they pass over all
			claimN(t, q, 1000)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if n := len(claimN(t, q, 1)); n != 0 {
			t.Fatalf("%d more messages of the key were claimed", n)
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 64*backlog {
			t.Errorf("a claim made %d bytes of a backlog of %d messages", got, backlog)
		}
	})
}

// entries remembers how many bytes the largest entry had, and the largest batch.
type entries struct {
	eventlog.Store
	entry, batch int
}

func (s *entries) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		n := 0
		for _, b := range e.Batches {
			n += len(b.Bytes)
			s.batch = max(s.batch, len(b.Bytes))
		}
		s.entry = max(s.entry, n)
	}
	return s.Store.Commit(ctx, flush)
}

// What a call makes of its messages goes in entries of bounded size, in batches that their topic
// takes: dead letters, what waits in the wheel, and what was handled and is kept.
func TestAnswersForLargeMessagesAreManySmallEntries(t *testing.T) {
	const messages, each = 24, 600 << 10
	for name, answer := range map[string]func(*queue.Queue, []string) ([]error, error){
		"reject": func(q *queue.Queue, receipts []string) ([]error, error) {
			return q.Nack(context.Background(), queue.Nack{Reject: true}, receipts...)
		},
		"wait": func(q *queue.Queue, receipts []string) ([]error, error) {
			return q.Nack(context.Background(), queue.Nack{SetDelay: true, Delay: time.Hour}, receipts...)
		},
		"keep": func(q *queue.Queue, receipts []string) ([]error, error) {
			return q.Ack(context.Background(), receipts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &entries{Store: newStore(t)}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{KeepDone: name == "keep"}})
				for range messages {
					if _, err := q.Enqueue(t.Context(), queue.NewMessage{Value: bytes.Repeat([]byte("v"), each)}); err != nil {
						t.Fatal(err)
					}
				}
				var receipts []string
				for _, m := range claimN(t, q, messages) {
					receipts = append(receipts, m.Receipt)
				}
				errs, err := answer(q, receipts)
				if err != nil || len(errs) != messages {
					t.Fatal(err, errs)
				}
				for i, err := range errs {
					if err != nil {
						t.Errorf("message %d: %v", i, err)
					}
				}
				if most := 4<<20 + 1<<20; store.entry > most {
					t.Errorf("an entry had %d bytes, more than %d", store.entry, most)
				}
				if most := 1<<20 + 64<<10; store.batch > most && name != "wait" { // the wheel takes larger ones
					t.Errorf("a batch had %d bytes, more than %d", store.batch, most)
				}
				if name == "reject" {
					if letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 1); err != nil || len(letters) != 1 || len(letters[0].Value) != each {
						t.Errorf("dead letters: %d, %v", len(letters), err)
					}
				}
			})
		})
	}
}

// lists counts the pages of keys that are read.
type lists struct {
	eventlog.Store
	n atomic.Int64
}

func (s *lists) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.n.Add(1)
	return s.Store.List(ctx, prefix, after, limit)
}

// The counts of a wide queue cost a few pages of keys, and not a call for each partition.
func TestTheCountsOfAWideQueueCostAFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &lists{Store: newStore(t)}
		q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 200})
		enqueue(t, q, "a", "b", "c")
		claimN(t, q, 1)
		before := store.n.Load()
		if s, err := q.Stats(t.Context()); err != nil || s.Ready != 2 || s.Claimed != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if n := store.n.Load() - before; n > 10 {
			t.Errorf("the counts of 200 partitions cost %d lists", n)
		}
	})
}

// Of many claims that wait, as many look as there are messages, and twice that: not all of them,
// for each message.
func TestAMessageWakesAFewOfTheClaimsThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const claims = 200
		var rooms atomic.Int64 // asked for by each claim that finds something free
		q := create(t, start(t, newStore(t)), queue.Spec{Name: "mail", Partitions: 1})
		got := make(chan int, claims)
		for range claims {
			go func() {
				m, err := q.Claim(t.Context(), queue.Claim{Wait: 4 * time.Minute, Room: func(context.Context) (int64, func(), error) {
					rooms.Add(1)
					return 1 << 20, func() {}, nil
				}})
				if err != nil {
					t.Error(err)
				}
				got <- len(m)
			}()
		}
		synctest.Wait()
		for n := range 10 {
			enqueue(t, q, "v")
			synctest.Wait()
			if len(got) != n+1 {
				t.Fatalf("%d messages were enqueued, and %d claims got one", n+1, len(got))
			}
		}
		if n := rooms.Load(); n > 40 {
			t.Errorf("10 messages had %d claims look for them", n)
		}
		var many []queue.NewMessage
		for range claims - 10 {
			many = append(many, queue.NewMessage{Value: []byte("v")})
		}
		if _, err := q.Enqueue(t.Context(), many...); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(got) != claims {
			t.Errorf("%d of %d claims got a message", len(got), claims)
		}
	})
}
