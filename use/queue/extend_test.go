package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A lease that has ended gave its place to another message. Extending it would exceed the limit.
func TestAnEndedLeaseIsExtendedOnlyWithinTheConcurrencyLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newStore(t), 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 8, Settings: queue.Settings{Concurrency: 1, Lease: time.Second}})
		var messages []queue.NewMessage
		for i := range 64 {
			messages = append(messages, queue.NewMessage{Key: []byte{byte(i)}, Value: []byte{byte(i)}})
		}
		if _, err := q.Enqueue(t.Context(), messages...); err != nil {
			t.Fatal(err)
		}
		late := claimN(t, q, 1)[0]
		time.Sleep(time.Minute)
		errs, err := q.Extend(t.Context(), time.Second, late.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Fatalf("nobody has its place: %v", err)
		}
		held := late
		for held.ID == late.ID {
			time.Sleep(time.Minute)
			if held = claimN(t, q, 1)[0]; held.ID == late.ID {
				late = held
			}
		}
		errs, err = q.Extend(t.Context(), time.Second, late.Receipt)
		if err := one(t, errs, err); !errors.Is(err, queue.ErrStaleReceipt) {
			t.Errorf("extended past the limit: %v", err)
		}
		errs, err = q.Extend(t.Context(), time.Second, held.Receipt)
		if err := one(t, errs, err); err != nil {
			t.Errorf("the one that has the place: %v", err)
		}
	})
}
