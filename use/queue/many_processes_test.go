package queue_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-log/weir/use/queue"
)

// Fifty processes wait for the messages of eight partitions. Each of them gets as many as it asks
// for, and no message goes to two.
func TestFiftyProcessesOnEightPartitionsGetWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, each = 50, 4
		store := newStore(t)
		all := make([]process, processes)
		for i := range all {
			all[i] = begin(t, store, time.Second)
		}
		synctest.Wait()
		first := create(t, all[0].Queues, queue.Spec{Name: "mail", Partitions: 8})
		time.Sleep(2 * time.Second) // all hear of it
		var (
			mu      sync.Mutex // guards taken
			taken   = make(map[queue.MessageID]int)
			working sync.WaitGroup
		)
		for i, p := range all {
			q := open(t, p.Queues, "mail")
			working.Go(func() {
				for n := range each {
					ms, err := q.Claim(t.Context(), queue.Claim{Wait: time.Minute})
					if err != nil || len(ms) != 1 {
						t.Errorf("process %d got %v instead of its message %d: %v", i, ms, n, err)
						return
					}
					if errs, err := q.Ack(t.Context(), ms[0].Receipt); err != nil || errs[0] != nil {
						t.Errorf("ack: %v, %v", err, errs)
					}
					mu.Lock()
					taken[ms[0].ID]++
					mu.Unlock()
				}
			})
		}
		put(t, first, keyed(processes*each)...)
		working.Wait()
		for id, n := range taken {
			if n > 1 {
				t.Errorf("message %v went to %d workers", id, n)
			}
		}
		if len(taken) != processes*each {
			t.Errorf("%d messages were handled, want %d", len(taken), processes*each)
		}
		same(t, "the queue", stats(t, first), queue.Stats{})
	})
}
