package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// far is a store at a distance, that counts its calls and the batches with records.
type far struct {
	eventlog.Store
	lists, gets, reads, batches atomic.Int64

	mu          sync.Mutex // guards what follows
	asked, most int        // lists that are asked for, and at most at the same time
}

func (s *far) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	s.lists.Add(1)
	s.count(func() { s.asked++; s.most = max(s.most, s.asked) })
	defer s.count(func() { s.asked-- })
	time.Sleep(time.Millisecond)
	return s.Store.List(ctx, prefix, after, limit)
}

func (s *far) Get(ctx context.Context, keys []string, maxBytes int) ([]eventlog.KeyValue, error) {
	s.gets.Add(1)
	time.Sleep(time.Millisecond)
	return s.Store.Get(ctx, keys, maxBytes)
}

// calls counts the calls that read.
func (s *far) calls() int64 { return s.lists.Load() + s.gets.Load() + s.reads.Load() }

func (s *far) Read(ctx context.Context, spans []eventlog.Span, maxBytes int) ([]eventlog.Slice, error) {
	s.reads.Add(1)
	return s.Store.Read(ctx, spans, maxBytes)
}

func (s *far) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, b := range e.Batches {
			s.batches.Add(int64(min(b.Records, 1)))
		}
	}
	return s.Store.Commit(ctx, flush)
}

func (s *far) count(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// The unique keys of a call are read several at a time, and what is known of the messages that have
// them once for each partition.
func TestTheUniqueKeysOfACallAreReadTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages, partitions = 1000, 4
		store := &far{Store: newStore(t)}
		q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: partitions, Settings: queue.Settings{Unique: true}})
		var ms []queue.NewMessage
		for i := range messages {
			ms = append(ms, queue.NewMessage{Value: []byte("v"), Unique: fmt.Sprint(i)})
		}
		for _, repeated := range []bool{false, true} {
			lists, reads, began := store.lists.Load(), store.reads.Load(), time.Now()
			out, err := q.Enqueue(t.Context(), ms...)
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(out, func(e queue.Enqueued) bool { return e.Repeated != repeated }); i >= 0 {
				t.Fatalf("message %d: %+v", i, out[i])
			}
			if n := store.lists.Load() - lists; n > 10 {
				t.Errorf("%d messages, repeated %v, cost %d lists", messages, repeated, n)
			}
			if n := store.reads.Load() - reads; n > 2 {
				t.Errorf("%d messages, repeated %v, cost %d reads", messages, repeated, n)
			}
			if took := time.Since(began); took > messages/8*time.Millisecond {
				t.Errorf("%d messages, repeated %v, waited %v for a store that is 1 ms away", messages, repeated, took)
			}
		}
		var receipts []string
		for _, m := range claimN(t, q, messages) {
			receipts = append(receipts, m.Receipt)
		}
		before := store.lists.Load() + store.gets.Load()
		errs, err := q.Ack(t.Context(), receipts...)
		if err != nil || errors.Join(errs...) != nil || len(errs) < messages/2 {
			t.Fatal(len(errs), err, errors.Join(errs...))
		}
		if n := store.lists.Load() + store.gets.Load() - before; n > 3*partitions {
			t.Errorf("to acknowledge %d messages cost %d lists and reads of keys", len(receipts), n)
		}
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.most > 16 {
			t.Errorf("%d calls at the same time", store.most)
		}
	})
}

// However a call's messages wait, those of one partition share batches. Each message has its own
// id, and each unique key is its own message's.
func TestTheMessagesOfACallShareBatches(t *testing.T) {
	for name, of := range map[string]func(i int) queue.NewMessage{
		"delayed":            func(int) queue.NewMessage { return queue.NewMessage{Delay: time.Hour} },
		"unique":             func(i int) queue.NewMessage { return queue.NewMessage{Unique: fmt.Sprint(i)} },
		"delayed and unique": func(i int) queue.NewMessage { return queue.NewMessage{Unique: fmt.Sprint(i), Delay: time.Hour} },
		"some of them unique": func(i int) (m queue.NewMessage) {
			if i%3 == 0 {
				m.Unique = fmt.Sprint(i)
			}
			return m
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const messages, each = 600, 4 << 10 // too many bytes for one batch in each of 2 partitions
				store := &far{Store: newStore(t)}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 2, Settings: queue.Settings{Unique: true}})
				var ms []queue.NewMessage
				for i := range messages {
					m := of(i)
					m.Key, m.Value = fmt.Append(nil, i), fmt.Appendf(nil, "%*d", each, i)
					ms = append(ms, m)
				}
				batches := store.batches.Load()
				out, err := q.Enqueue(t.Context(), ms...)
				if err != nil {
					t.Fatal(err)
				}
				if n := store.batches.Load() - batches; n > 10 {
					t.Errorf("%d messages made %d batches", messages, n)
				}
				ids := make(map[queue.MessageID]int)
				for i := range out {
					ids[out[i].ID] = i
				}
				if len(ids) != messages {
					t.Fatalf("%d messages have %d ids", messages, len(ids))
				}
				var again []queue.Enqueued
				if unique := slices.DeleteFunc(slices.Clone(ms), func(m queue.NewMessage) bool { return m.Unique == "" }); len(unique) > 0 {
					if again, err = q.Enqueue(t.Context(), unique...); err != nil {
						t.Fatal(err)
					}
				}
				for _, e := range again {
					if _, known := ids[e.ID]; !e.Repeated || !known {
						t.Fatalf("a repeated message: %+v", e)
					}
				}
				time.Sleep(time.Hour + 10*time.Second)
				for claimed := 0; claimed < messages; {
					got := claimN(t, q, messages)
					if len(got) == 0 {
						t.Fatalf("%d of %d messages came", claimed, messages)
					}
					claimed += len(got)
					var receipts []string
					for _, m := range got {
						i, known := ids[m.ID]
						if !known || string(m.Value) != string(ms[i].Value) {
							t.Fatalf("message %v is not what was enqueued under this id", m.ID)
						}
						receipts = append(receipts, m.Receipt)
					}
					if errs, err := q.Ack(t.Context(), receipts...); err != nil || errors.Join(errs...) != nil {
						t.Fatal(err, errs)
					}
				}
				out, err = q.Enqueue(t.Context(), ms...)
				if err != nil {
					t.Fatal(err)
				}
				for i, e := range out {
					if e.Repeated {
						t.Fatalf("the key of message %d, which is done, is taken", i)
					}
				}
			})
		})
	}
}
