package queue_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/eventlog"
	"github.com/weir-log/weir/use/queue"
)

// carrying is SQL whose one ack is carried into the queue's state right before somebody asks for acks.
type carrying struct{ carry func() }

func (c *carrying) Acked(context.Context, string, eventlog.Partition) ([]eventlog.Offset, error) {
	c.carry()
	return nil, nil // its row is gone
}

func (c *carrying) Unacked(_ context.Context, _ string, _ eventlog.Partition, offsets []eventlog.Offset) ([]eventlog.Offset, error) {
	return offsets, nil
}

// A transaction that acknowledges commits after the lease; the message is claimed again, and then the mover carries the ack: before the claimer asks
// which messages transactions acknowledged.
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
