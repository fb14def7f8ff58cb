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

// weighed remembers how large the last state was that was put.
type weighed struct {
	eventlog.Store
	bytes atomic.Int64
}

func (s *weighed) Commit(ctx context.Context, flush []eventlog.Entry) ([]eventlog.Outcome, error) {
	for _, e := range flush {
		for _, p := range e.Puts {
			if strings.HasPrefix(p.Key, "queue/state/") {
				s.bytes.Store(int64(len(p.Value)))
			}
		}
	}
	return s.Store.Commit(ctx, flush)
}

// Each ack writes the partition's state: what it takes is what an ack costs.
func TestAnAckWritesLittleHoweverManyMessagesAreClaimed(t *testing.T) {
	once(t)
	const messages = 1000
	worker := func(n int) string { return fmt.Sprint("worker ", n, strings.Repeat(" with a long name", 10)) }
	for name, c := range map[string]struct{ claim, workers, most int }{
		"one by one":                 {1, 1, 10*messages + 500},
		"one by one, by ten workers": {1, 10, 12*messages + 5000},
		"a hundred at a time":        {100, 10, 2*messages + 5000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &weighed{Store: newStore(t)}
				q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Window: messages, Lease: time.Hour}})
				if _, err := q.Enqueue(t.Context(), make([]queue.NewMessage, messages)...); err != nil {
					t.Fatal(err)
				}
				var got []queue.Message
				for n := 0; len(got) < messages; n++ {
					time.Sleep(37 * time.Millisecond)
					some, err := q.Claim(t.Context(), queue.Claim{Max: c.claim, Worker: worker(n % c.workers)})
					if err != nil || len(some) != c.claim {
						t.Fatal(len(some), err)
					}
					got = append(got, some...)
				}
				for i := 1; i < messages; i += 2 { // every other one, so that no two claimed ones are neighbours
					errs, err := q.Ack(t.Context(), got[i].Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
					if n := store.bytes.Load(); n > int64(c.most) {
						t.Fatalf("ack %d of %d claims wrote a state of %d bytes, more than %d", i/2+1, messages, n, c.most)
					}
				}
			})
		})
	}
}

// So it is while messages wait that failed, each with another error.
func TestAnAckWritesLittleHoweverManyErrorsAreKept(t *testing.T) {
	once(t)
	const messages = 1000
	synctest.Test(t, func(t *testing.T) {
		store := &weighed{Store: newStore(t)}
		q := create(t, start(t, store), queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Window: messages, Lease: time.Hour}})
		if _, err := q.Enqueue(t.Context(), make([]queue.NewMessage, messages)...); err != nil {
			t.Fatal(err)
		}
		got, err := q.Claim(t.Context(), queue.Claim{Max: messages})
		if err != nil || len(got) != messages {
			t.Fatal(len(got), err)
		}
		for n, m := range got[1:] {
			time.Sleep(37 * time.Millisecond)
			errs, err := q.Nack(t.Context(), queue.Nack{Error: fmt.Sprint("request ", n, strings.Repeat(" failed", 40)), SetDelay: true, Delay: time.Minute}, m.Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		}
		errs, err := q.Ack(t.Context(), got[0].Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatal(err)
		}
		if n, most := store.bytes.Load(), int64(12*messages+17<<10); n > most {
			t.Errorf("an ack while %d messages wait wrote a state of %d bytes, more than %d", messages, n, most)
		}
	})
}
