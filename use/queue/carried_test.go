package queue_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// carrying is SQL whose one ack is carried into the queue's state right before somebody asks for
// acks.
type carrying struct{ carry func() }

func (c *carrying) Acked(context.Context, []string, eventlog.Partition) ([]eventlog.Offset, error) {
	c.carry()
	return nil, nil // its row is gone
}

func (c *carrying) Enqueued(context.Context, []eventlog.TopicID, int64) (at queue.MessageID, waits, found bool, err error) {
	return at, false, false, nil
}

func (c *carrying) Unacked(_ context.Context, _ []string, _ eventlog.Partition, offsets []eventlog.Offset) ([]eventlog.Offset, error) {
	return offsets, nil
}

// A transaction that acknowledges commits after the lease; the message is claimed again, and then
// the mover carries the ack: before the claimer asks which messages transactions acknowledged.
func TestAMessageWhoseAckIsCarriedDuringAClaimIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := &carrying{carry: func() {}}
		qs := beginBeside(t, newStore(t), time.Second, sql)
		synctest.Wait()
		q := create(t, qs.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Lease: time.Second}})
		enqueue(t, q, "acknowledged", "other")
		first := claimN(t, q, 2)
		time.Sleep(2 * time.Second)
		sql.carry = sync.OnceFunc(func() {
			errs, err := q.Handled(t.Context(), func() error { return nil }, first[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Error(err)
			}
		})
		if got := claimN(t, q, 2); values(got) != "other " {
			t.Errorf("claimed %q, want only the message that was not acknowledged", values(got))
		}
	})
}

// inSQL is SQL in which transactions acknowledged messages that the mover has not carried yet.
type inSQL struct {
	committed, open map[eventlog.Offset]bool
	asked           int
}

func (s *inSQL) Acked(context.Context, []string, eventlog.Partition) ([]eventlog.Offset, error) {
	s.asked++
	return slices.Collect(maps.Keys(s.committed)), nil
}

func (s *inSQL) Enqueued(context.Context, []eventlog.TopicID, int64) (at queue.MessageID, waits, found bool, err error) {
	return at, false, false, nil
}

func (s *inSQL) Unacked(_ context.Context, _ []string, _ eventlog.Partition, offsets []eventlog.Offset) ([]eventlog.Offset, error) {
	return slices.DeleteFunc(slices.Clone(offsets), func(o eventlog.Offset) bool { return s.committed[o] || s.open[o] }), nil
}

func TestAMessageThatATransactionAcknowledgedIsNotDeliveredAfterAnAttemptThatDoesNotCount(t *testing.T) {
	for name, back := range map[string]func(t *testing.T, q *queue.Queue, m []queue.Message){
		"nacked uncounted": func(t *testing.T, q *queue.Queue, m []queue.Message) {
			errs, err := q.Nack(t.Context(), queue.Nack{Uncounted: true}, m[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
		},
		"given back": func(_ *testing.T, q *queue.Queue, m []queue.Message) { q.GiveBack(m) },
		"nacked uncounted, and given back": func(t *testing.T, q *queue.Queue, m []queue.Message) {
			errs, err := q.Nack(t.Context(), queue.Nack{Uncounted: true}, m[0].Receipt)
			if err := one(t, errs, err); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			q.GiveBack(claimN(t, q, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sql := &inSQL{committed: map[eventlog.Offset]bool{}, open: map[eventlog.Offset]bool{}}
				qs := beginBeside(t, newStore(t), time.Second, sql)
				synctest.Wait()
				q := create(t, qs.Queues, queue.Spec{Name: "mail", Partitions: 1})
				enqueue(t, q, "committed")
				m := claimN(t, q, 1)
				back(t, q, m)
				sql.committed[m[0].ID.Offset] = true
				time.Sleep(time.Second)
				if got := claimN(t, q, 1); len(got) > 0 {
					t.Errorf("claimed %q, which a committed transaction acknowledged", values(got))
				}

				enqueue(t, q, "open")
				m = claimN(t, q, 1)
				back(t, q, m)
				sql.open[m[0].ID.Offset] = true
				time.Sleep(time.Second)
				again := claimN(t, q, 1)
				if values(again) != "open " {
					t.Fatalf("claimed %q", values(again))
				}
				errs, err := q.Nack(t.Context(), queue.Nack{Reject: true}, again[0].Receipt)
				if err := one(t, errs, err); err != nil {
					t.Fatal(err)
				}
				letters, err := q.DeadLetters(t.Context(), queue.MessageID{}, 10)
				if err != nil || len(letters) > 0 {
					t.Errorf("dead letters %+v, %v: an open transaction may acknowledge the message", letters, err)
				}
			})
		})
	}
}

func TestARepeatedClaimLeavesOutWhatATransactionAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := &inSQL{committed: map[eventlog.Offset]bool{}}
		qs := beginBeside(t, newStore(t), time.Second, sql)
		synctest.Wait()
		q := create(t, qs.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b")
		claim := func() []queue.Message {
			t.Helper()
			got, err := q.Claim(t.Context(), queue.Claim{Max: 2, ID: "once", Worker: "w"})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		first := claim()
		if values(first) != "a b " {
			t.Fatalf("claimed %q", values(first))
		}
		sql.committed[first[0].Offset] = true
		if got := claim(); values(got) != "b " {
			t.Errorf("the repeated claim got %q, want only the message that was not acknowledged", values(got))
		}
		sql.committed[first[1].Offset] = true
		enqueue(t, q, "c")
		if got := claim(); values(got) != "c " {
			t.Errorf("after all was acknowledged, the claim got %q", values(got))
		}
	})
}

func TestAFirstClaimDoesNotAskSQL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sql := &inSQL{}
		qs := beginBeside(t, newStore(t), time.Second, sql)
		synctest.Wait()
		q := create(t, qs.Queues, queue.Spec{Name: "mail", Partitions: 1})
		enqueue(t, q, "a", "b", "c")
		if got := claimN(t, q, 2); values(got) != "a b " || sql.asked != 0 {
			t.Errorf("claimed %q, and asked SQL %d times", values(got), sql.asked)
		}
	})
}
