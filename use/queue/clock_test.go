package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/store/memory"
	"github.com/weir-log/weir/use/queue"
)

// The store's clock is an hour ahead of the process's, or behind: a message's time to live is
// counted by the store's.
func TestTheTTLCountsByTheStoresClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &jumping{Store: newStore(t)}
			store.by.Store(int64(ahead))
			p := begin(t, store, time.Second)
			synctest.Wait()
			q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{TTL: 10 * time.Minute}})
			enqueue(t, q, "young")
			if got := values(claimN(t, q, 1)); got != "young " {
				t.Errorf("enqueued a moment ago, and claimed: %q", got)
			}
			enqueue(t, q, "old")
			time.Sleep(11 * time.Minute)
			if got := values(claimN(t, q, 1)); got != "" {
				t.Errorf("after the ttl %q is claimed", got)
			}
		})
	}
}

// A time is one of the store's clock, whatever the clock of the process was that used a queue
// first.
func TestATimeIsOneOfTheStoresClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		store.by.Store(int64(time.Hour)) // the process is an hour behind
		p := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		if _, err := q.Enqueue(t.Context(), queue.NewMessage{At: time.Now().Add(time.Hour + time.Minute)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if got := claimN(t, q, 1); len(got) > 0 {
			t.Error("it came before its time")
		}
		time.Sleep(15 * time.Second)
		if got := claimN(t, q, 1); len(got) == 0 {
			t.Error("it did not come at its time")
		}
	})
}

// Letters are listed; the store loses its end; another message dies, and its letter has the offset
// of the first. It is not taken for that one.
func TestALetterFromBeforeTheStoreLostItsEndIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		p := begin(t, store, time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b")
		got := claimN(t, q, 2)
		restore := store.Backup()
		reject := func(m queue.Message) {
			errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, m.Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		}
		reject(got[0])
		listed, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
		if err != nil || len(listed) != 1 {
			t.Fatal(listed, err)
		}
		restore(false) // a standby without the last commit takes over: a is claimed again
		time.Sleep(5 * time.Second)
		reject(got[1])
		if n, err := q.Redrive(t.Context(), listed...); n != 0 || err == nil {
			t.Errorf("%d letters redriven, %v", n, err)
		}
		time.Sleep(31 * time.Second) // a's lease
		if all := values(claimN(t, q, 10)); all != "a " {
			t.Errorf("the queue has %q, want a, once", all)
		}
		if left, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10); err != nil || len(left) != 1 || string(left[0].Value) != "b" {
			t.Errorf("the dead letters are %+v, %v, want b", left, err)
		}
	})
}

// The clocks of the processes are an hour ahead of the store's, or behind: a lease lasts as long as
// was asked for, and its end is told by the store's clock.
func TestALeaseEndsByTheStoresClock(t *testing.T) {
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			store := &jumping{Store: newStore(t)}
			store.by.Store(int64(ahead))
			a, b := begin(t, store, time.Second), begin(t, store, time.Second)
			synctest.Wait()
			q := create(t, a.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: 30 * time.Second}})
			enqueue(t, q, "a")
			m := claimN(t, q, 1)[0]
			if left := m.Until.Sub(store.now()); left < 29*time.Second || left > 31*time.Second {
				t.Errorf("a lease of 30 s ends %v from now, by the store's clock", left)
			}
			time.Sleep(20 * time.Second)
			extend(t, q, 30*time.Second, m)
			other := open(t, b.Queues, "mail")
			time.Sleep(29 * time.Second)
			if got := claimN(t, other, 1); len(got) > 0 {
				t.Errorf("another process claimed %v before the lease ended", got)
			}
			time.Sleep(2 * time.Second)
			if got := claimN(t, other, 1); len(got) != 1 || got[0].Attempt != 2 {
				t.Errorf("after the lease another process claimed %v", got)
			}
			errs, err := q.Ack(t.Context(), m.Receipt)
			if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
				t.Errorf("ack of the claim that was over: %v", err)
			}
		})
	}
}

// inexact is a store that knows its clock only within bounds, as S3 does.
type inexact struct {
	eventlog.Store
	before, after time.Duration
}

func (s inexact) List(ctx context.Context, prefix, after string, limit int) ([]eventlog.KeyValue, error) {
	kvs, err := s.Store.List(ctx, prefix, after, limit)
	for i := range kvs {
		now := time.Now()
		kvs[i].Now, kvs[i].NowMax = eventlog.Timestamp(now.Add(-s.before).UnixMilli()), eventlog.Timestamp(now.Add(s.after).UnixMilli())
	}
	return kvs, err
}

// A message passes processes that know the store's clock more or less exactly: one delays it,
// another gives it out, and fails. It comes neither before its time, nor before its pause or
// another worker's lease ended, nor later than what is unknown.
func TestNothingComesEarlyInProcessesThatDoNotKnowTheTimeExactly(t *testing.T) {
	for _, bounds := range [][4]time.Duration{{0, 0, 0, 0}, {0, time.Second, 0, 0}, {time.Second, 0, 0, time.Second}, {0, time.Second, 900 * time.Millisecond, 100 * time.Millisecond}, {500 * time.Millisecond, 600 * time.Millisecond, 0, time.Second}} {
		t.Run(fmt.Sprint(bounds), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore(t)
				a, b := begin(t, inexact{store, bounds[0], bounds[1]}, time.Second), begin(t, inexact{store, bounds[2], bounds[3]}, time.Second)
				synctest.Wait()
				spec := queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: 20 * time.Second}}
				queues := []*queue.Queue{create(t, a.Queues, spec), nil}
				synctest.Wait()
				queues[1] = open(t, b.Queues, "mail")
				last := time.Now()
				within := func(what string, want time.Duration) {
					t.Helper()
					const looks = 3 * time.Second // a process looks for another's changes so often
					if got := time.Since(last); got < want || got > want+bounds[0]+bounds[1]+bounds[2]+bounds[3]+looks {
						t.Errorf("%s: after %v, want %v", what, got, want)
					}
					last = time.Now()
				}
				get := func(q *queue.Queue) queue.Message {
					t.Helper()
					got, err := q.Claim(t.Context(), queue.Claim{Wait: time.Minute})
					if err != nil || len(got) != 1 {
						t.Fatal(got, err)
					}
					return got[0]
				}
				for n := range 4 {
					last = time.Now()
					delayed(t, queues[n%2], "late", 30*time.Second)
					if m := get(queues[(n/2)%2]); m.Time.Before(last.Add(-time.Millisecond)) {
						t.Errorf("it was enqueued at %v, and has the time %v, from which its ttl counts", last, m.Time)
					}
					within("a delay of 30 s", 30*time.Second)
					m := get(queues[(n+1)%2])
					within("a lease of 20 s", 20*time.Second)
					errs, err := queues[n%2].Nack(t.Context(), queue.Nack{SetDelay: true, Delay: 10 * time.Second}, m.Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
					m = get(queues[(n/2)%2])
					within("a pause of 10 s", 10*time.Second)
					errs, err = queues[n%2].Ack(t.Context(), m.Receipt)
					if err := one(t, errs, err); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
