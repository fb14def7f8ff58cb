package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// A rate goes on soon after the store's clock is set back, and holds.
func TestARateHoldsWhenTheStoresClockIsSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &jumping{Store: newStore(t)}
		store.by.Store(int64(time.Hour))
		p := begin(t, store, 20*time.Second)
		synctest.Wait()
		q := create(t, p.Queues, queue.Spec{Name: "mail", Partitions: 1, Settings: queue.Settings{Rate: 2, Lease: 2 * time.Hour}})
		for range 300 {
			enqueue(t, q, "x")
		}
		claimFor := func(length time.Duration) (n int) {
			t.Helper()
			for range length / (100 * time.Millisecond) {
				n += len(claimN(t, q, 10))
				time.Sleep(100 * time.Millisecond)
			}
			return n
		}
		claimFor(10 * time.Second)
		store.by.Store(0)
		time.Sleep(15 * time.Second) // the clock is read every 10 s
		if n := claimFor(time.Minute); n < 118 || n > 123 {
			t.Errorf("in the minute after the clock was set back %d messages were claimed, 2 a second are allowed", n)
		}
	})
}
